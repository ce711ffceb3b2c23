"""The tables of error codes against what the servers and drivers themselves list.

Each code of a list is in a table by itself, by its class, or by the rule for all others. One that sounds like
an outage or like a refused account is not left to that rule, unless it is named here.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psycopg.errors
import pytest
from confluent_kafka import KafkaError
from pymysql.constants import CR

from penstock.connections import kafka_codes as kafka
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.sinks.clickhouse import faults as clickhouse
from penstock.sinks.kafka import faults as kafka_faults
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.topics import Topics
from penstock.sinks.opensearch import faults as opensearch
from penstock.sinks.redis import faults as redis
from penstock.sinks.sql.codes import MYSQL, POSTGRESQL
from penstock.testing import servers
from penstock.testing.servers.opensearch import jars

OUTAGE, POISON, CONFIGURATION = Verdict.OUTAGE, Verdict.POISON, Verdict.CONFIGURATION


def test_each_sqlstate_that_the_driver_of_postgresql_lists_is_sorted_by_itself_or_by_its_class() -> None:
    listed = {
        str(getattr(error, "sqlstate", None)): name
        for name, error in vars(psycopg.errors).items()
        if isinstance(error, type) and isinstance(getattr(error, "sqlstate", None), str)
    }
    assert len(listed) > 250
    named = POSTGRESQL.outage | POSTGRESQL.configuration | POSTGRESQL.poison
    assert [state for state in listed if state not in named and state[:2] not in named] == []
    assert {one for one in named if len(str(one)) == 5} <= listed.keys()
    assert {one for one in named if len(str(one)) == 2} <= {state[:2] for state in listed}
    for name, verdict in {
        "ReadOnlySqlTransaction": OUTAGE, "IdleInTransactionSessionTimeout": OUTAGE, "DiskFull": OUTAGE,
        "DeadlockDetected": OUTAGE, "AdminShutdown": OUTAGE, "LockNotAvailable": OUTAGE,
        "InvalidPassword": CONFIGURATION, "InsufficientPrivilege": CONFIGURATION,
        "UniqueViolation": POISON, "UndefinedTable": POISON, "DataCorrupted": POISON,
        "TransactionIntegrityConstraintViolation": POISON,
    }.items():  # fmt: skip
        state = getattr(psycopg.errors, name).sqlstate
        assert POSTGRESQL.verdict(state, state[:2]) is verdict, name


_SOUNDS = re.compile(
    r"READ_?ONLY|SHUTDOWN|TIMEOUT|DEADLOCK|DISK_FULL|OUT_?OF_?(SORT)?MEMORY|OUT_OF_RESOURCES|KILLED|"
    r"INTERRUPTED|OFFLINE|LOCK_(ABORTED|REFUSED)|TOO_MANY_(CONCURRENT|USER)|ISNT_AVAILABLE|"
    r"ACCESS_?DENIED|ACCOUNT|^08|^28|^40|^70"
)
"""An outage or a refused account, by its name or its SQLSTATE."""
_NOT_OF_STATEMENTS = re.compile(
    r"REPLICA|SOURCE|SLAVE|MASTER|GROUP_REPLICATION|GR_HOLD|CLONE|BULK|AUDIT|RPL|BINLOG|WARN|TOO_LARGE|"
    r"LH_|JDV_|DEBUG_SYNC|LOCKING_SERVICE|PERSIST|GRANT_AS|KEYRING|READ_ONLY_MODE|VARIABLE_IS_READONLY|"
    r"INNODB_REDO_LOG|RESOURCE_GROUP|KILL_DENIED|CONCURRENT_CLONES|CLIENT_PRIVILEGE|TP_|DA_|MLE"
)
"""Errors of replication, of administration, and of features that the sink does not use."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [servers.MySqlServer, servers.MySql97Server])
def test_no_error_that_mysql_lists_and_that_sounds_like_an_outage_parks_a_table(
    kind: type[servers.MySqlServer],
) -> None:
    with kind({"performance_schema": "ON"}) as server:
        listed = {
            int(number): (str(name), str(state))
            for number, name, state in server.query(
                "SELECT ERROR_NUMBER, ERROR_NAME, SQL_STATE FROM "
                "performance_schema.events_errors_summary_global_by_error WHERE ERROR_NUMBER < 10000"
            )
        }
    assert len(listed) > 1000
    wrong = []
    for number, (name, state) in listed.items():
        found = _SOUNDS.search(name) or _SOUNDS.search(state)
        if found and not _NOT_OF_STATEMENTS.search(name) and MYSQL.verdict(number) is POISON:
            wrong.append((number, name, state))
    assert wrong == []
    poison = {"ER_DUP_ENTRY", "ER_DATA_TOO_LONG", "ER_NO_SUCH_TABLE", "ER_NET_PACKET_TOO_LARGE"}
    assert {MYSQL.verdict(number) for number, (name, _) in listed.items() if name in poison} == {POISON}


def _of_mariadb(file: Path) -> dict[int, str]:
    """The messages of a server of MariaDB, from its own file: a header of 32 bytes, the number of messages in
    each thousand, an offset each, and the texts."""
    data = file.read_bytes()
    count, thousands = struct.unpack_from("<HH", data, 12)
    counts = struct.unpack_from(f"<{thousands}H", data, 32)
    texts = iter(data[32 + 2 * thousands + 2 * count :].split(b"\0"))
    return {
        1000 * thousand + number: next(texts).decode()
        for thousand, size in enumerate(counts, 1)
        for number in range(size)
    }


@pytest.mark.slow
def test_the_codes_that_only_mariadb_has_mean_what_its_messages_say() -> None:
    with servers.MariaDb118Server({}) as server:
        [(folder,)] = server.query("SELECT @@lc_messages_dir")
    listed = _of_mariadb(Path(str(folder)) / "english" / "errmsg.sys")
    assert "Access denied" in listed[1045] and len(listed) > 1200
    for number, said in {
        1021: "Disk full", 1077: "shutdown", 1927: "killed", 1969: "interrupted", 4145: "BACKUP STAGE",
    }.items():  # fmt: skip
        assert said.lower() in listed[number].lower() and MYSQL.verdict(number) is OUTAGE, number
    for number, said in {4150: "blocked", 4151: "locked", 1698: "Access denied"}.items():
        assert said in listed[number] and MYSQL.verdict(number) is CONFIGURATION, number
    sounds = re.compile(
        r"read.only|Disk full|deadlock|lock wait|max_statement_time|out of memory|killed", re.I
    )
    ours = {number for number, text in listed.items() if sounds.search(text)}
    parks = {number: listed[number] for number in ours if MYSQL.verdict(number) is POISON}
    not_of_writes = re.compile(r"variable|slave|disabling timer|Illegal|UDF|partition|%s%s|deprecated", re.I)
    assert [text for text in parks.values() if not not_of_writes.search(text)] == []


def test_each_error_of_the_client_of_mysql_that_is_about_the_connection_is_waited_for() -> None:
    listed = {name: code for name, code in vars(CR).items() if name.startswith("CR_")}
    sounds = re.compile(r"CONN|LOST|GONE|HOST|SOCKET|PIPE|SSL|MALFORMED|SYNC|HANDSHAKE|VERSION|MEMORY")
    others = re.compile(
        r"SHARED_MEMORY|EMBEDDED|PROBE|SLAVE|MASTER|PARAM|ALREADY|HOST_INFO|NAMEDPIPE|LOCALHOST|"
        r"TCP_CONNECTION|SECURE_AUTH|FIPS|DUPLICATE|UNKNOW_PROTOCOL"
    )
    """Of the client's options, and of other ways to connect."""
    parks = {name for name, code in listed.items() if MYSQL.verdict(code) is POISON}
    assert [name for name in parks if sounds.search(name) and not others.search(name)] == []


_REDIS_POISON = {
    "ERR", "WRONGTYPE", "BUSYGROUP", "NOGROUP", "NOSCRIPT", "NOTBUSY", "INVALIDOBJ", "NOADDR",
    "NOGOODPRIMARY", "OK",
}  # fmt: skip


def test_each_code_in_the_program_of_valkey_is_sorted() -> None:
    with servers.valkey() as server:
        [file] = {one for one in server.command()[0] if one.endswith("/valkey-server")}
        program = Path(file).read_bytes()
    listed = {code.decode() for code in re.findall(rb"\0-([A-Z]{3,16}) [A-Z%a-z]", program)}
    assert {"LOADING", "MISCONF", "NOAUTH", "READONLY"} <= listed
    named = redis.CODES.outage | redis.CODES.configuration
    assert listed - named <= _REDIS_POISON, listed - named - _REDIS_POISON


def _exceptions() -> Iterator[str]:
    for jar in jars():
        if jar.name.startswith("opensearch"):
            for name in zipfile.ZipFile(jar).namelist():
                if found := re.search(r"/([A-Z]\w*Exception)\.class$", name):
                    bare = found[1].removeprefix("OpenSearch")
                    yield re.sub(r"(?<!^)(?=[A-Z])", "_", bare).lower()


@pytest.mark.slow
def test_each_exception_that_the_table_of_opensearch_names_is_one_of_the_server() -> None:
    listed = set(_exceptions())
    older = {"es_rejected_execution_exception", "opensearch_rejected_execution_exception",
             "master_not_discovered_exception"}  # fmt: skip
    named = {one for one in opensearch.CODES.outage | opensearch.CODES.configuration if isinstance(one, str)}
    assert named - older <= listed, named - older - listed
    for shard in (name for name in listed if name.startswith(("index_shard_", "illegal_index_shard"))):
        if "restore" not in shard and "snapshot" not in shard and "recovery" not in shard:
            assert opensearch.CODES.verdict(shard, 404) is OUTAGE, shard


_KAFKA_PASSES = re.compile(
    r"GROUP_PROTOCOL|INVALID_(FETCH|SHARE|SESSION|GROUP|COMMIT|MSG|PRODUCER|TXN|REPLICA|PARTITIONS|CONFIG|"
    r"REQUEST|PRINCIPAL|UPDATE|REGISTRATION|RECORD_STATE|VOTER|REGULAR|TYPE|REPLICATION|DIFFERENT)|"
    r"UNSUPPORTED_(ASSIGNOR|ENDPOINT)|TOKEN_(AUTH_DISABLED|OWNER|REQUEST)|TOPOLOGY|TELEMETRY|"
    r"OFFSET_METADATA|TOPIC_EXCEPTION"
)
"""Of consumers, of administration, of a producer that is replaced by another one, and of the making of a
topic, which has a rule of its own (`sinks.kafka.topics`)."""


def test_each_code_of_kafka_that_no_wait_mends_is_sorted_and_all_others_are_waited_for() -> None:
    listed = {
        name: code
        for name, code in vars(KafkaError).items()
        if name.strip("_").isupper() and isinstance(code, int) and code
    }
    assert len(listed) > 180
    named = kafka.CODES.configuration | kafka.CODES.poison
    sounds = re.compile(r"AUTH|SASL|TOKEN|UNSUPPORTED|INVALID|TOO_LARGE|POLICY|SECURITY|_ACKS")
    waits = {name for name, code in listed.items() if code not in named and sounds.search(name)}
    assert [name for name in waits if not _KAFKA_PASSES.search(name)] == []
    for name in (
        "KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "INVALID_TXN_STATE",
        "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "CONCURRENT_TRANSACTIONS", "NOT_LEADER_FOR_PARTITION",
        "COORDINATOR_LOAD_IN_PROGRESS", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_PRODUCER_ID", "_TRANSPORT",
        "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_BAD_MSG", "_SSL", "LISTENER_NOT_FOUND", "TRANSACTION_ABORTABLE",
    ):  # fmt: skip
        assert kafka.CODES.verdict(listed[name]) is OUTAGE, name
        assert isinstance(kafka_faults.explained(KafkaError(listed[name]), "x"), TransientError), name
    table = TableId("shop", "orders")
    for code in (code for code in listed.values() if code in named):
        error = kafka_faults.of_table(KafkaError(code), table, "t", "host:9092")
        is_poison = kafka.CODES.verdict(code) is POISON
        assert isinstance(error, TableError if is_poison else ConfigError) and error.hint, error


@pytest.mark.parametrize(("replication", "kind"), [(None, TransientError), (3, TableError)])
def test_too_few_brokers_for_a_new_topic_are_waited_for_unless_the_options_ask_for_more(
    replication: int | None, kind: type[Exception]
) -> None:
    options = {"type": "kafka", "bootstrap": "127.0.0.1:1", "format": "json", "replication": replication}
    topics = Topics(KafkaOptions.model_validate(options), {"bootstrap.servers": "127.0.0.1:1"})
    error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR)
    assert isinstance(topics._refused(error, TableId("shop", "orders"), "shop.orders"), kind)


@pytest.mark.parametrize(
    ("table", "known"), [(POSTGRESQL, ("99999", "99")), (MYSQL, (5999,)), (clickhouse.CODES, (2999,)),
                         (opensearch.CODES, ("new_exception", 400)), (redis.CODES, ("NEW",))],
)  # fmt: skip
def test_an_unknown_code_is_about_the_table(table: Codes, known: tuple[str | int, ...]) -> None:
    assert table.verdict(*known) is POISON

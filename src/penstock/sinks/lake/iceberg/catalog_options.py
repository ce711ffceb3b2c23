"""The section `sink.catalog`: the catalog that has the tables, in the words of Iceberg's own documentation.

Each model says which of Iceberg's catalog properties its options become (`iceberg_properties`) and where the
tables' files are (`storage_of`). The registration of the sink turns these into options of Spark and jars.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError
from typing_extensions import Self

from penstock.model.section import Section
from penstock.secret import Secret
from penstock.sinks.table_entries import as_text

Storage = Literal["s3", "gcs", "azure", "files"]

_SCHEMES: dict[str, Storage] = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs",
    "abfs": "azure", "abfss": "azure", "wasb": "azure", "wasbs": "azure",
    "file": "files", "hdfs": "files", "viewfs": "files",
}  # fmt: skip
_FILE_IO: dict[Storage, str] = {
    "s3": "org.apache.iceberg.aws.s3.S3FileIO",
    "gcs": "org.apache.iceberg.gcp.gcs.GCSFileIO",
    "azure": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
}
METADATA_CACHE = "penstock.iceberg.MetadataCache"
"""Finds the FileIO of a location, and remembers metadata files: `java/MetadataCache.java`."""
_PREFIXES: dict[str, Storage] = {"s3.": "s3", "client.": "s3", "gcs.": "gcs", "adls.": "azure"}
"""The beginnings of Iceberg's properties about a store."""
_KEYS = ("s3.access-key-id", "gcs.oauth2.token", "adls.auth.", "adls.sas-token.", "adls.connection-string.")
_REST_LIMITS = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "120000"}
"""Iceberg has no limits of its own. A commit that was not answered in time is looked up by Iceberg."""
_HIVE_LIMITS = {"hadoop.hive.metastore.client.socket.timeout": "60s"}
"""Hive's own limit for an answer is ten minutes."""
_DELEGATION = "header.X-Iceberg-Access-Delegation"


Property = Annotated[Secret, BeforeValidator(as_text, json_schema_input_type=str | bool | int | float)]


class CatalogOptions(Section):
    """The options that every type of catalog has."""

    type: str
    """Type of the catalog."""
    name: str = Field("lake", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the catalog in Spark, for example in `penstock query`."""
    warehouse: str | None = None
    """Where the catalog puts tables: a URL such as `s3://bucket/path`, or an absolute path."""
    storage: Storage | None = None
    """The store of the tables' files. For `s3`, Iceberg's AWS bundle is downloaded. For `gcs` and `azure`,
    add Iceberg's bundle to spark.driver.extraClassPath in `spark.conf`. `files`: a local directory, or a
    file system that Hadoop is configured for. None: the store of the URL `warehouse`, or the one that
    `properties` are about. If neither tells, `s3` for the catalogs rest and glue, otherwise `files`."""
    properties: dict[str, Property] = Field(default_factory=dict)
    """Further properties of the Iceberg catalog and its FileIO, such as `s3.endpoint`,
    `s3.access-key-id`, `s3.secret-access-key`, `s3.path-style-access`, `client.region` or `header.NAME`.
    Their values are not shown anywhere."""

    @field_validator("warehouse")
    @classmethod
    def _is_no_relative_path(cls, value: str | None) -> str | None:
        return None if value is None else _absolute(value)

    @model_validator(mode="after")
    def _says_each_thing_once(self) -> Self:
        names = [info.alias or name for name, info in type(self).model_fields.items() if name != "name"]
        for name in self.properties:
            option = name.removeprefix("jdbc.")
            if option in names:
                raise ValueError(f"`properties` has {name}; give it as the option `{option}`")
        return self

    @property
    def directory(self) -> Path | None:
        """The warehouse, if it is a local directory."""
        warehouse = self.warehouse or ""
        if warehouse.startswith("/"):
            return Path(warehouse)
        place = urlsplit(warehouse)
        return Path(place.path) if place.scheme == "file" else None

    @property
    def remembers_metadata(self) -> bool:
        """Whether metadata files are kept in memory (`METADATA_CACHE`): in object stores."""
        return storage_of(self) in _FILE_IO and "io-impl" not in self.properties

    def iceberg_properties(self) -> dict[str, str]:
        """The properties of the Iceberg catalog. Contains secrets as text."""
        found = {"type": self.type}
        if self.warehouse is not None:
            found["warehouse"] = self.warehouse
        if self.remembers_metadata:
            found["io-impl"] = METADATA_CACHE
        return {**found, **self._own(), **{name: one.reveal() for name, one in self.properties.items()}}

    def _own(self) -> dict[str, str]:
        """The properties for the options that only this type of catalog has."""
        return {}


class RestCatalog(CatalogOptions):
    """A server that speaks Iceberg's REST protocol, such as Polaris, Nessie, Lakekeeper, Unity Catalog or
    Snowflake Open Catalog."""

    type: Literal["rest"]
    """Type of the catalog."""
    uri: str
    """Address of the server, up to but without `/v1`."""
    warehouse: str | None = None
    """Name of the warehouse at the server; some servers want a URL. None: the server's default."""
    credential: Secret = Secret()
    """OAuth2 client credentials, `ID:SECRET`, which are exchanged for a token."""
    token: Secret = Secret()
    """A bearer token, instead of `credential`."""
    scope: str | None = None
    """Scope of the OAuth2 token. None: `catalog`."""
    oauth2_server_uri: str | None = Field(None, alias="oauth2-server-uri")
    """Address that exchanges `credential` for a token. None: `v1/oauth/tokens` at `uri`."""

    @field_validator("warehouse")
    @classmethod
    def _is_no_relative_path(cls, value: str | None) -> str | None:
        return value  # a name, which the server understands

    @property
    def directory(self) -> Path | None:
        return None  # what `warehouse` means is up to the server

    @field_validator("uri", "oauth2_server_uri")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"https?://[^/]", value):
            raise ValueError("write an address that begins with http:// or https://")
        return value

    @field_validator("credential")
    @classmethod
    def _has_two_parts(cls, value: Secret) -> Secret:
        if value and ":" not in value.reveal():
            raise ValueError("write the client's id and secret as `ID:SECRET`")
        return value

    @model_validator(mode="after")
    def _logs_in_one_way(self) -> Self:
        if self.credential and self.token:
            raise ValueError("give `credential` or `token`, not both")
        return self

    def _own(self) -> dict[str, str]:
        found = {"uri": self.uri.rstrip("/"), **_REST_LIMITS}
        options = {
            "credential": self.credential.reveal(),
            "token": self.token.reveal(),
            "scope": self.scope,
            "oauth2-server-uri": self.oauth2_server_uri,
        }
        found |= {name: value for name, value in options.items() if value}
        if not any(name.startswith(_KEYS) for name in self.properties):
            found[_DELEGATION] = "vended-credentials"
        return found


class JdbcCatalog(CatalogOptions):
    """Two tables in a database."""

    type: Literal["jdbc"]
    """Type of the catalog."""
    uri: str
    """JDBC address of the database, such as `jdbc:postgresql://host/database`, `jdbc:mysql://host/database`
    or `jdbc:sqlite:/absolute/path`. The drivers of these three and of MariaDB are downloaded."""
    warehouse: str
    """Where the catalog puts tables: a URL such as `s3://bucket/path`, or an absolute path."""
    user: str | None = None
    """Account in the database."""
    password: Secret = Secret()
    """Its password."""

    @field_validator("uri")
    @classmethod
    def _is_jdbc_address(cls, value: str) -> str:
        if not value.startswith("jdbc:"):
            raise ValueError("write an address that begins with jdbc:")
        if re.match(r"jdbc:sqlite:(?!(file:)?/)", value):
            raise ValueError("write the database's file as an absolute path, jdbc:sqlite:/path")
        return value

    @property
    def database(self) -> str:
        """The product, as the address names it."""
        return self.uri.split(":")[1]

    def _own(self) -> dict[str, str]:
        # V1 is needed for views; the two tables of an older catalog get one more column.
        found = {"uri": self.uri, "jdbc.schema-version": "V1"}
        if self.user is not None:
            found["jdbc.user"] = self.user
        return found | ({"jdbc.password": self.password.reveal()} if self.password else {})


class HiveCatalog(CatalogOptions):
    """A Hive metastore."""

    type: Literal["hive"]
    """Type of the catalog."""
    uri: str
    """Address of the metastore, such as `thrift://host:9083`; several with commas between them."""

    @field_validator("uri")
    @classmethod
    def _is_thrift_address(cls, value: str) -> str:
        if not all(re.match(r"thrift://[^/]", one.strip()) for one in value.split(",")):
            raise ValueError("write an address that begins with thrift://")
        return value

    def _own(self) -> dict[str, str]:
        return {"uri": self.uri, **_HIVE_LIMITS}


class HadoopCatalog(CatalogOptions):
    """A directory with a directory for each table. It must be on a file system in which a rename fails if the
    new name is taken: a local disk or HDFS, but no object store."""

    type: Literal["hadoop"]
    """Type of the catalog."""
    warehouse: str
    """The directory: an absolute path, or a URL such as `hdfs://host/path`."""

    @field_validator("warehouse")
    @classmethod
    def _is_no_object_store(cls, value: str) -> str:
        if _SCHEMES.get(urlsplit(value).scheme) in ("s3", "gcs"):
            raise ValueError(
                "a hadoop catalog cannot be in an object store, where two writers may both believe that they "
                "committed; use a catalog of type rest, jdbc, hive or glue"
            )
        return value


class GlueCatalog(CatalogOptions):
    """AWS Glue. Untried: no test of Penstock has run against it."""

    type: Literal["glue"]
    """Type of the catalog."""
    warehouse: str
    """Where the catalog puts tables: `s3://bucket/path`."""


AnyCatalog = RestCatalog | JdbcCatalog | HiveCatalog | HadoopCatalog | GlueCatalog
_TYPES: dict[str, type[CatalogOptions]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(AnyCatalog)
}


def storage_of(catalog: CatalogOptions) -> Storage:
    """The place of the files of the catalog's tables, as far as the options name it."""
    given = catalog.properties.get("io-impl")
    if given is not None:
        return next((storage for storage, name in _FILE_IO.items() if name == given.reveal()), "files")
    if catalog.storage is not None:
        return catalog.storage
    warehouse = catalog.warehouse or ""
    by_url = "files" if warehouse.startswith("/") else _SCHEMES.get(urlsplit(warehouse).scheme)
    by_properties = (_PREFIXES.get(name[: name.find(".") + 1]) for name in catalog.properties)
    found = by_url or next(filter(None, by_properties), None)
    return found or ("s3" if isinstance(catalog, (RestCatalog, GlueCatalog)) else "files")


def _absolute(warehouse: str) -> str:
    if not warehouse.startswith("/") and not urlsplit(warehouse).scheme:
        raise ValueError("write a URL, or an absolute path")
    return warehouse


def _read(section: Any) -> Any:
    """Checks a section by the model of its type, so that errors are about that type alone."""
    if isinstance(section, (str, CatalogOptions)):
        return section
    if not isinstance(section, dict):
        raise ValueError("write a section with `type`, or the name of a catalog in Spark")
    kind = section.get("type")
    if kind is None:
        raise _wrong_type("missing", section)
    if kind not in _TYPES:
        why = f"{kind} is not a type of catalog; there are {', '.join(_TYPES)}"
        raise _wrong_type(PydanticCustomError("catalog_type", "{why}", {"why": why}), section)
    return _TYPES[kind].model_validate(section)


def _wrong_type(error: str | PydanticCustomError, section: dict[str, Any]) -> ValidationError:
    details = InitErrorDetails(type=error, loc=("type",), input=section.get("type"))
    return ValidationError.from_exception_data("catalog", [details])


CatalogSection = Annotated[str | AnyCatalog, BeforeValidator(_read)]

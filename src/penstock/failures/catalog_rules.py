"""Rules for failures of catalogs (REST, Glue, JDBC, Hive) and of S3."""

from __future__ import annotations

from penstock.failures.rule import Rule, rule

_STORE_KEYS = (
    "Check s3.access-key-id and s3.secret-access-key in the catalog's properties, or the credentials in the "
    "environment, if there are none in the properties."
)
_NOT_LOST = "The pipeline continues from where it is."

REST_RULES: tuple[Rule, ...] = (
    rule(
        r"oauth2-server-uri",
        "The REST catalog does not hand out tokens itself.",
        "Give `oauth2-server-uri`, the address of the identity provider that exchanges `credential` for a "
        "token. If the catalog wants no login, leave `credential` out.",
    ),
    rule(
        "NotAuthorizedException|invalid_client|unauthorized_client|invalid_grant",
        "The catalog, or its identity provider, does not accept the login.",
        "Check the catalog's `credential` (ID:SECRET) or `token`, and `scope` and `oauth2-server-uri`.",
    ),
    rule(
        r"invalid_scope",
        "The identity provider of the catalog does not know the scope.",
        "Check the catalog's `scope`; Polaris wants PRINCIPAL_ROLE:ALL.",
    ),
    rule(
        "ForbiddenException: (?:Forbidden: )?(.*)",
        "The catalog's account lacks a right: {1}.",
        "Grant the account what `penstock docs catalogs` lists: to create, change and drop namespaces "
        "and tables.",
    ),
    rule(
        r"Warehouse '?([\w.:/-]+)'? (?:is not known|not found|does not exist)|"
        r"Unable to find warehouse ([\w.:/-]+)|(WarehouseNotFound)",
        "The catalog has no warehouse {1}{2}.",
        "Check the catalog's `warehouse`: for a REST catalog it is the name of a warehouse at the server.",
    ),
    rule(
        r"Named reference '([^']*)' not found",
        "The catalog has no branch {1}.",
        "Check the catalog's `uri`: behind …/iceberg, Nessie reads the name of a branch. `/v1` is not part "
        "of it.",
    ),
    rule(
        r"RESTException: Unable to process \(code: (?:404|405)",
        "The server that `uri` names has no Iceberg catalog there.",
        "Check the catalog's `uri`: the server's address and path up to, but without, `/v1`. If the catalog "
        "answers and only the files of tables fail, it offers to sign requests for S3 in a way that Iceberg "
        "1.12 does not know: let it vend credentials instead, or give s3.access-key-id in `properties`.",
    ),
    rule(
        r"RESTException: Unable to process \(code: (\d+)",
        "The REST catalog, or its identity provider, answered with an error ({1}).",
        "Check `uri` and `oauth2-server-uri` of the catalog, and the server's log.",
        lasting=False,
    ),
    rule(
        r"JsonParseException: Unexpected character \('<'",
        "The server that `uri` names does not answer as an Iceberg catalog does.",
        "Check the catalog's `uri`: the server's address and path up to, but without, `/v1`.",
    ),
    rule(
        "Unsupported or unrecognized SSL message|plaintext connection",
        "A server that is addressed with https:// does not speak TLS.",
        "Write http:// in the address (`uri`, s3.endpoint), or switch TLS on at the server.",
    ),
    rule(
        "PKIX path|ValidatorException|unable to find valid certification path|No subject alternative",
        "Java does not trust the certificate of a server.",
        "Add its authority to Java's trust store (keytool -importcert), or name another one by "
        "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE. The certificate must contain the host's name.",
    ),
)

GLUE_RULES: tuple[Rule, ...] = (
    rule(
        r"not authorized to perform: (glue:\w+)",
        "The account may not do {1}.",
        "Grant it what `penstock docs catalogs` lists: to create, read, change and drop tables.",
    ),
    rule(
        r"GlueException: The (?:security token included in the request|request signature we calculated)",
        "Glue does not accept the credentials, or they have expired.",
        "Glue takes credentials as AWS's tools do: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a "
        f"role. s3.access-key-id is for files only. {_NOT_LOST}",
    ),
    rule(
        r"GlueException: Service returned HTTP status code (\d+)|"
        r"(?:GlueException|InternalServiceException): .*Status Code: (5\d\d)|(ThrottlingException)",
        "Glue, or a proxy before it, answered with an error ({1}{2}{3}).",
        f"Check glue.endpoint in the catalog's properties, and proxies. {_NOT_LOST}",
        lasting=False,
    ),
)

S3_RULES: tuple[Rule, ...] = (
    rule(
        "ExpiredToken|(?:token|credentials)[^.]* expired",
        "The credentials for S3 have expired.",
        f"Renew them. {_NOT_LOST}",
        lasting=False,
    ),
    rule(
        "signature we calculated does not match|SignatureDoesNotMatch",
        "S3 does not accept the secret key.",
        _STORE_KEYS,
    ),
    rule(
        "InvalidAccessKeyId|access key id you provided does not exist|security token .* is invalid",
        "S3 does not know the access key.",
        _STORE_KEYS,
    ),
    rule(
        "NoSuchBucketException|specified bucket does not exist",
        "The bucket does not exist.",
        "Create the bucket that the catalog's `warehouse`, or `location` in `sink.tables`, names. Or correct "
        "that option, s3.endpoint or client.region.",
    ),
    rule(
        r"Status Code: 301|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|"
        "must be addressed using the specified endpoint",
        "The bucket is in another region.",
        "Set client.region in the catalog's properties to the region of the bucket.",
    ),
    rule(
        r"(?:S3Exception|AwsServiceException): .*Status Code: (403|401)",
        "S3 refuses access ({1}).",
        f"{_STORE_KEYS} They need the rights to list the bucket, and to get, put and delete objects in it.",
    ),
    rule(
        r"S3Exception: .*Status Code: (405|501)",
        "The store does not allow what Iceberg does with it ({1}).",
        "Check s3.endpoint, and whether the bucket is read-only.",
    ),
    rule(
        r"Location does not exist: (\S+)|File does not exist: (\S+\.(?:json|avro|parquet|puffin))",
        "A file that belongs to a table is missing: {1}{2}.",
        "Somebody has removed it, or a rule of the bucket. Restore it, or run `penstock resnapshot FILE "
        "TABLE --recreate`: the target is then dropped, created and filled again.",
    ),
    rule(
        r"Unable to load region from any",
        "There is no region for S3.",
        "Set client.region in the catalog's properties, or AWS_REGION. A compatible server mostly takes "
        "us-east-1.",
    ),
    rule(
        r"Unable to load credentials from any",
        "There are no credentials for S3.",
        "Give s3.access-key-id and s3.secret-access-key in the catalog's properties, or credentials as AWS "
        "has them: AWS_ACCESS_KEY_ID, a profile, a role. If a REST catalog should hand them out, its account "
        "needs that right. Glue itself takes only credentials as AWS has them.",
    ),
    rule(
        r"(?:S3Exception|AwsServiceException): .*Status Code: (429|500|502|503|504)|SlowDown",
        "The store is overloaded, or has failed ({1}).",
        f"Check the store. {_NOT_LOST}",
        lasting=False,
    ),
)

DATABASE_RULES: tuple[Rule, ...] = (
    rule(
        r"Access denied for user '([^']*)'@'[^']*' to database '([^']*)'",
        "The account {1} may not use the catalog's database {2}.",
        "Grant it all rights on that database: the catalog creates two tables in it.",
    ),
    rule(
        r"Access denied for user '([^']*)'|password authentication failed for user \"([^\"]*)\"|"
        r"no pg_hba.conf entry for host .* user \"([^\"]*)\"",
        "The catalog's database does not accept the account {1}{2}{3}.",
        "Check `user` and `password` of the catalog, and from which hosts the database accepts the account.",
    ),
    rule(
        r"Unknown database '([^']*)'|database \"([^\"]*)\" does not exist",
        "The catalog's database {1}{2} does not exist.",
        "Create it, or correct the catalog's `uri`.",
    ),
    rule(
        r"\[SQLITE_(?:CANTOPEN|READONLY\w*|PERM|NOTADB)\]",
        "The SQLite database of the catalog cannot be opened or written.",
        "Check the path in the catalog's `uri`: its directory must exist, and this account may write to it.",
    ),
    rule(
        r"\[SQLITE_BUSY\w*\]",
        "Another process has locked the catalog's SQLite database.",
        "SQLite is for trials and for one pipeline. Use a database server for more.",
        lasting=False,
    ),
    rule(
        r"CommunicationsException: Communications link failure|PSQLException: Connection to (\S+) refused|"
        r"PSQLException: The connection attempt failed|SQLNonTransientConnectionException: "
        r"(?:Socket fail|Could not connect)",
        "The catalog's database cannot be reached: {1}.",
        f"Check host and port in the catalog's `uri`, and that the database is running. {_NOT_LOST}",
        lasting=False,
    ),
)

HIVE_RULES: tuple[Rule, ...] = (
    rule(
        "Failed to connect to Hive Metastore",
        "The Hive metastore of the catalog cannot be reached or used.",
        "Check the catalog's `uri` (thrift://host:9083). A catalog in `spark.conf` that is not Hive's needs "
        "a `type`: hadoop, rest, jdbc, glue or nessie.",
    ),
    rule(
        r"InvalidOperationException:? ?\(message:The following columns have types incompatible",
        "The Hive metastore refuses changed columns: it compares them by their position.",
        "Set hive.metastore.disallow.incompatible.col.type.changes=false at the metastore, as Iceberg's "
        "documentation asks for.",
    ),
    rule(
        r"InvalidObjectException:? ?\(message:(.*) is not a valid (database|object|table) name",
        "The Hive metastore takes only letters, digits and _ in names, and so no {2} {1}.",
        "Choose a `namespace` of such characters. Leave out tables with others in their names, or use "
        "another type of catalog.",
    ),
    rule(
        "Version information not found in metastore|"
        r"Unable to instantiate \S*HiveMetaStoreClient",
        "The catalog has no usable Hive metastore.",
        "Give the catalog a `type` in `spark.conf` (hadoop, rest, jdbc, glue, nessie), or "
        "the `uri` of a Hive metastore.",
    ),
)

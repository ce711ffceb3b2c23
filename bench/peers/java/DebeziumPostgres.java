import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/**
 * Debezium's embedded engine with PostgreSQL. Arguments: log|messages|snapshot|latency host port user password
 * database schema.table slot publication, then for `log` and `messages` the tail table, for `snapshot` the number of
 * threads, for `latency` the file. `messages` takes properties as name=value, too.
 */
public final class DebeziumPostgres {
    private static final String NAME = "bench";

    public static void main(String[] args) throws Exception {
        Properties properties = properties(args);
        switch (args[0]) {
            case "log" -> DebeziumReader.run(properties, "." + args[9]);
            case "messages" -> {
                properties.setProperty("tombstones.on.delete", "true");
                properties.setProperty("converter.schemas.enable", "false");
                for (int i = 10; i < args.length; i++) {
                    String[] parts = args[i].split("=", 2);
                    properties.setProperty(parts[0], parts[1]);
                }
                DebeziumMessages.run(properties, "." + args[9]);
            }
            case "snapshot" -> {
                properties.setProperty("snapshot.mode", "initial_only");
                properties.setProperty("snapshot.max.threads", args[9]);
                properties.setProperty("max.batch.size", "20480");
                properties.setProperty("max.queue.size", "81920");
                properties.setProperty("poll.interval.ms", "10");
                DebeziumSnapshot.run(properties);
            }
            case "latency" -> {
                properties.setProperty("poll.interval.ms", "5");
                DebeziumLatency.run(properties, Path.of(args[9]));
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static Properties properties(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("name", NAME);
        properties.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        properties.setProperty("plugin.name", "pgoutput");
        properties.setProperty("topic.prefix", NAME);
        properties.setProperty("database.hostname", args[1]);
        properties.setProperty("database.port", args[2]);
        properties.setProperty("database.user", args[3]);
        properties.setProperty("database.password", args[4]);
        properties.setProperty("database.dbname", args[5]);
        properties.setProperty("database.sslmode", "disable");
        properties.setProperty("table.include.list", args[6]);
        properties.setProperty("slot.name", args[7]);
        properties.setProperty("publication.name", args[8]);
        properties.setProperty("publication.autocreate.mode", "disabled");
        // Without an offset it begins where the slot does.
        properties.setProperty("snapshot.mode", "no_data");
        properties.setProperty("tombstones.on.delete", "false");
        properties.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        properties.setProperty(
                "offset.storage.file.filename", Files.createTempFile("debezium", ".offsets").toString());
        properties.setProperty("offset.flush.interval.ms", "60000");
        return properties;
    }
}

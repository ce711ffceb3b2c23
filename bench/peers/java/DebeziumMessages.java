import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.ByteArrayOutputStream;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * Prints Debezium's messages: key, tab, value, up to the first one of the tail table.
 * Arguments: host port user password file position database tail-table gtids, then properties as name=value.
 */
public final class DebeziumMessages {
    private static final String NAME = "bench";
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        Path offsets = Files.createTempFile("debezium", ".offsets");
        writeOffset(offsets, args[4], args[5], args[8]);
        run(properties(args, offsets), "." + args[7]);
    }

    /** Prints messages up to the first one of the topic that ends with `tail`, and then ends the process. */
    static void run(Properties properties, String tail) throws Exception {
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("Error: the engine ended: " + message + " " + error);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> onBatch(records, tail))
                .build();
        engine.run();
    }

    private static void onBatch(List<ChangeEvent<String, String>> records, String tail) {
        for (ChangeEvent<String, String> record : records) {
            if (record.destination().endsWith(tail)) {
                OUT.flush();
                Runtime.getRuntime().halt(0);
            }
            OUT.println(record.key() + "\t" + (record.value() == null ? "" : record.value()));
        }
    }

    private static void writeOffset(Path path, String file, String position, String gtids) throws Exception {
        String key = "[\"" + NAME + "\",{\"server\":\"" + NAME + "\"}]";
        String value = "{\"ts_sec\":1,\"file\":\"" + file + "\",\"pos\":" + position + ",\"gtids\":\"" + gtids
                + "\",\"server_id\":1}";
        Map<byte[], byte[]> offset = new HashMap<>();
        offset.put(key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream stream = new ObjectOutputStream(bytes)) {
            stream.writeObject(offset);
        }
        Files.write(path, bytes.toByteArray());
    }

    private static Properties properties(String[] args, Path offsets) {
        Properties properties = new Properties();
        properties.setProperty("name", NAME);
        properties.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        properties.setProperty("topic.prefix", NAME);
        properties.setProperty("database.hostname", args[0]);
        properties.setProperty("database.port", args[1]);
        properties.setProperty("database.user", args[2]);
        properties.setProperty("database.password", args[3]);
        properties.setProperty("database.ssl.mode", "disabled");
        properties.setProperty("database.server.id", "94012");
        properties.setProperty("database.include.list", args[6]);
        properties.setProperty("snapshot.mode", "recovery");
        properties.setProperty("include.schema.changes", "false");
        properties.setProperty("converter.schemas.enable", "false");
        properties.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        properties.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        properties.setProperty("offset.storage.file.filename", offsets.toString());
        properties.setProperty("offset.flush.interval.ms", "60000");
        for (int i = 9; i < args.length; i++) {
            String[] parts = args[i].split("=", 2);
            properties.setProperty(parts[0], parts[1]);
        }
        return properties;
    }
}

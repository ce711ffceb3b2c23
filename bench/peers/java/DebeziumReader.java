import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.ByteArrayOutputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's embedded engine reads the log into Connect records. It starts from an offset file written here, with
 * snapshot.mode=recovery, so that it reads table definitions but no rows first.
 * Arguments: host port user password file position database tail-table gtids.
 */
public final class DebeziumReader {
    private static final String NAME = "bench";

    public static void main(String[] args) throws Exception {
        Path offsets = Files.createTempFile("debezium", ".offsets");
        writeOffset(offsets, args[4], args[5], args[8]);
        run(properties(args, offsets), "." + args[7]);
    }

    static void run(Properties properties, String tail) throws Exception {
        Window window = new Window();
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine
                .create(ChangeEventFormat.of(Connect.class))
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("Error: the engine ended: " + message + " " + error);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> onBatch(records, window, tail))
                .build();
        engine.run();
    }

    private static void onBatch(List<RecordChangeEvent<SourceRecord>> records, Window window, String tail) {
        for (RecordChangeEvent<SourceRecord> event : records) {
            SourceRecord record = event.record();
            if (!(record.value() instanceof Struct value) || value.schema().field("op") == null) {
                continue;
            }
            if (record.topic().endsWith(tail)) {
                System.out.println(window.end());
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            window.begin();
            switch (value.getString("op")) {
                case "c" -> window.inserts++;
                case "u" -> window.updates++;
                case "d" -> window.deletes++;
                default -> throw new IllegalStateException("operation " + value.getString("op"));
            }
        }
    }

    static void writeOffset(Path path, String file, String position, String gtids) throws Exception {
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

    static Properties properties(String[] args, Path offsets) {
        Properties properties = new Properties();
        properties.setProperty("name", NAME);
        properties.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        properties.setProperty("topic.prefix", NAME);
        properties.setProperty("database.hostname", args[0]);
        properties.setProperty("database.port", args[1]);
        properties.setProperty("database.user", args[2]);
        properties.setProperty("database.password", args[3]);
        properties.setProperty("database.ssl.mode", "disabled");
        properties.setProperty("database.server.id", "94002");
        properties.setProperty("database.include.list", args[6]);
        properties.setProperty("snapshot.mode", "recovery");
        properties.setProperty("include.schema.changes", "false");
        properties.setProperty("tombstones.on.delete", "false");
        properties.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        properties.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        properties.setProperty("offset.storage.file.filename", offsets.toString());
        properties.setProperty("offset.flush.interval.ms", "60000");
        return properties;
    }
}

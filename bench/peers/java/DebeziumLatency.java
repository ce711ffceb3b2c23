import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's embedded engine follows a table from now on. For each change it notes when the source committed it, when
 * its record was handed out, and what it was. Rows with negative ids are marks: the first one that comes makes it say
 * that it is ready, the id -2 ends it. Arguments: host port user password database table file.
 */
public final class DebeziumLatency {
    private static final String NAME = "latency";
    private static final long END = -2;

    private final BufferedWriter out;
    private boolean ready;

    private DebeziumLatency(Path file) throws IOException {
        out = Files.newBufferedWriter(file);
    }

    public static void main(String[] args) throws Exception {
        run(properties(args), Path.of(args[6]));
    }

    static void run(Properties properties, Path file) throws Exception {
        DebeziumLatency reader = new DebeziumLatency(file);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine
                .create(ChangeEventFormat.of(Connect.class))
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("Error: the engine ended: " + message + " " + error);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> reader.onBatch(records))
                .build();
        engine.run();
    }

    private void onBatch(List<RecordChangeEvent<SourceRecord>> records) {
        long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        for (RecordChangeEvent<SourceRecord> event : records) {
            if (event.record().value() instanceof Struct value && value.schema().field("op") != null) {
                try {
                    onChange(value, now);
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }

    private void onChange(Struct value, long now) throws IOException {
        String operation = value.getString("op");
        long id = value.getStruct("d".equals(operation) ? "before" : "after").getInt64("id");
        if (id >= 0) {
            out.write(value.getStruct("source").getInt64("ts_us") + " " + now + " " + operation + "\n");
        } else if (id == END) {
            out.close();
            Runtime.getRuntime().halt(0);
        } else if (!ready) {
            ready = true;
            System.out.println("ready");
            System.out.flush();
        }
    }

    private static Properties properties(String[] args) throws IOException {
        Properties properties = new Properties();
        properties.setProperty("name", NAME);
        properties.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        properties.setProperty("topic.prefix", NAME);
        properties.setProperty("database.hostname", args[0]);
        properties.setProperty("database.port", args[1]);
        properties.setProperty("database.user", args[2]);
        properties.setProperty("database.password", args[3]);
        properties.setProperty("database.ssl.mode", "disabled");
        properties.setProperty("database.server.id", "94011");
        properties.setProperty("database.include.list", args[4]);
        properties.setProperty("table.include.list", args[4] + "." + args[5]);
        properties.setProperty("snapshot.mode", "no_data");
        // The engine looks for new changes this often; 500 unless told otherwise.
        properties.setProperty("poll.interval.ms", "5");
        properties.setProperty("include.schema.changes", "false");
        properties.setProperty("tombstones.on.delete", "false");
        properties.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        properties.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        properties.setProperty(
                "offset.storage.file.filename", Files.createTempFile("debezium", ".offsets").toString());
        properties.setProperty("offset.flush.interval.ms", "60000");
        return properties;
    }
}

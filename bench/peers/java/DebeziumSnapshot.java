import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.nio.file.Files;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's embedded engine reads a table into Connect records: snapshot.mode=initial_only. It ends at the record
 * that Debezium itself marks as the snapshot's last.
 * Arguments: host port user password database table threads.
 */
public final class DebeziumSnapshot {
    private static final String NAME = "load";

    public static void main(String[] args) throws Exception {
        run(properties(args));
    }

    static void run(Properties properties) throws Exception {
        Window window = new Window();
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine
                .create(ChangeEventFormat.of(Connect.class))
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("Error: the engine ended: " + message + " " + error);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> {
                    for (RecordChangeEvent<SourceRecord> event : records) {
                        onRecord(event.record(), window);
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                })
                .build();
        engine.run();
    }

    private static void onRecord(SourceRecord record, Window window) {
        if (!(record.value() instanceof Struct value) || value.schema().field("op") == null) {
            return;
        }
        if (!"r".equals(value.getString("op"))) {
            throw new IllegalStateException("operation " + value.getString("op"));
        }
        window.begin();
        window.inserts++;
        if ("last".equals(value.getStruct("source").getString("snapshot"))) {
            System.out.println(window.end());
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
    }

    private static Properties properties(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("name", NAME);
        properties.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        properties.setProperty("topic.prefix", NAME);
        properties.setProperty("database.hostname", args[0]);
        properties.setProperty("database.port", args[1]);
        properties.setProperty("database.user", args[2]);
        properties.setProperty("database.password", args[3]);
        properties.setProperty("database.ssl.mode", "disabled");
        properties.setProperty("database.server.id", "94005");
        properties.setProperty("database.include.list", args[4]);
        properties.setProperty("table.include.list", args[4] + "." + args[5]);
        properties.setProperty("snapshot.mode", "initial_only");
        properties.setProperty("snapshot.max.threads", args[6]);
        // snapshot.fetch.size stays as it is for MySQL: the driver streams rows, the fastest way it has.
        properties.setProperty("max.batch.size", "20480");
        properties.setProperty("max.queue.size", "81920");
        properties.setProperty("poll.interval.ms", "10");
        properties.setProperty("include.schema.changes", "false");
        properties.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        properties.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        properties.setProperty(
                "offset.storage.file.filename", Files.createTempFile("debezium", ".offsets").toString());
        properties.setProperty("offset.flush.interval.ms", "60000");
        return properties;
    }
}

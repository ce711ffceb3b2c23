import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/**
 * Debezium's JDBC sink, driven as Kafka Connect does it. Arguments: URL, user and password of the database, and
 * how many messages it gets at once (100). The input has a message a line: topic, key and value in Base64 (`-`:
 * none), with tabs between them. After a line `=`, the seconds and CPU seconds since the last one are printed.
 */
public final class JdbcSink {
    public static void main(String[] args) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("name", "copy");
        settings.put("topics", "any");
        settings.put("connection.url", args[0]);
        settings.put("connection.username", args[1]);
        settings.put("connection.password", args[2]);
        settings.put("insert.mode", "upsert");
        settings.put("delete.enabled", "true");
        settings.put("primary.key.mode", "record_key");
        settings.put("schema.evolution", "basic");
        settings.put("collection.name.format", "${topic}");
        int batch = args.length > 3 ? Integer.parseInt(args[3]) : 100;
        settings.put("batch.size", String.valueOf(Math.max(batch, 500)));
        JsonConverter keys = new JsonConverter();
        JsonConverter values = new JsonConverter();
        keys.configure(Map.of("schemas.enable", "true"), true);
        values.configure(Map.of("schemas.enable", "true"), false);
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        SinkTaskContext context = (SinkTaskContext) Proxy.newProxyInstance(
                JdbcSink.class.getClassLoader(),
                new Class<?>[] {SinkTaskContext.class},
                (proxy, method, arguments) -> switch (method.getName()) {
                    case "assignment" -> Set.of(new TopicPartition("any", 0));
                    case "configs" -> settings;
                    default -> null;
                });
        task.initialize(context);
        task.start(settings);
        List<SinkRecord> records = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        long offset = 0;
        long began = System.nanoTime();
        long used = cpu();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("=")) {
                task.put(records);
                records.clear();
                task.flush(Map.of());
                System.out.printf("%d %.3f %.3f%n", offset, (System.nanoTime() - began) / 1e9, (cpu() - used) / 1e9);
                System.out.flush();
                began = System.nanoTime();
                used = cpu();
                continue;
            }
            String[] fields = line.split("\t");
            SchemaAndValue key = keys.toConnectData(fields[0], bytes(fields[1]));
            SchemaAndValue value = values.toConnectData(fields[0], bytes(fields[2]));
            records.add(new SinkRecord(
                    fields[0], 0, key.schema(), key.value(), value.schema(), value.value(), offset++, 0L,
                    TimestampType.CREATE_TIME));
            if (records.size() == batch) {
                task.put(records);
                records.clear();
            }
        }
        task.put(records);
        task.flush(Map.of());
        task.put(List.of());
        task.stop();
        System.out.println(offset);
        System.exit(0);
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }
}

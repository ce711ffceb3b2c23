import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine reads the log into JSON without schemas, and a producer sends it, as in Kafka Connect:
 * many messages are on their way at once. It begins as DebeziumReader does, and ends when the broker has
 * acknowledged everything.
 * Arguments: host port user password file position database tail-table gtids bootstrap topic.
 */
public final class DebeziumKafka {
    public static void main(String[] args) throws Exception {
        Path offsets = Files.createTempFile("debezium", ".offsets");
        DebeziumReader.writeOffset(offsets, args[4], args[5], args[8]);
        Properties properties = DebeziumReader.properties(args, offsets);
        properties.setProperty("converter.schemas.enable", "false");
        Map<String, Object> client = new HashMap<>();
        client.put("bootstrap.servers", args[9]);
        client.put("acks", "all");
        client.put("compression.type", "lz4");
        client.put("linger.ms", 5);
        client.put("batch.size", 1_000_000);
        client.put("buffer.memory", 64L << 20);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(client, new StringSerializer(), new StringSerializer());
        Window window = new Window();
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("Error: the engine ended: " + message + " " + error);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> onBatch(records, window, producer, "." + args[7], args[10]))
                .build();
        engine.run();
    }

    private static void onBatch(
            List<ChangeEvent<String, String>> records,
            Window window,
            KafkaProducer<String, String> producer,
            String tail,
            String topic) {
        for (ChangeEvent<String, String> record : records) {
            if (record.value() == null || !record.value().contains("\"op\"")) {
                continue;
            }
            if (record.destination().endsWith(tail)) {
                producer.flush();
                System.out.println(window.end());
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            window.begin();
            window.inserts++;
            producer.send(new ProducerRecord<>(topic, record.key(), record.value()), (sent, error) -> {
                if (error != null) {
                    System.err.println("Error: a message was not sent: " + error);
                    Runtime.getRuntime().halt(1);
                }
            });
        }
    }
}

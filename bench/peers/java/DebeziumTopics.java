import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A connector of Debezium, embedded, whose messages go into topics of Kafka, as in Kafka Connect: it delivers
 * at least once. Arguments: bootstrap, number of partitions, file with the connector's properties.
 */
public final class DebeziumTopics {
    private static final Set<String> CREATED = new HashSet<>();

    public static void main(String[] args) throws Exception {
        Map<String, Object> client = new HashMap<>();
        client.put("bootstrap.servers", args[0]);
        int partitions = Integer.parseInt(args[1]);
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(args[2])) {
            properties.load(file);
        }
        Admin admin = Admin.create(client);
        client.put("linger.ms", 5);
        client.put("enable.idempotence", true);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(client, new StringSerializer(), new StringSerializer());
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println("The engine ended: " + message + " " + error);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> record : records) {
                        create(admin, record.destination(), partitions);
                        producer.send(new ProducerRecord<>(record.destination(), record.key(), record.value()));
                    }
                    producer.flush();
                    for (ChangeEvent<String, String> record : records) {
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                })
                .build();
        engine.run();
    }

    private static void create(Admin admin, String topic, int partitions) {
        if (!CREATED.add(topic)) {
            return;
        }
        try {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
        } catch (Exception error) {
            if (!(error.getCause() instanceof TopicExistsException)) {
                throw new IllegalStateException(error);
            }
        }
    }
}

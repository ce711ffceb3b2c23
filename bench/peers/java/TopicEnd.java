import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Waits until a topic with one partition has so many messages, which is when the broker has acknowledged them. */
final class TopicEnd {
    private static final long SECONDS_MAX = 120;

    static void await(String bootstrap, String topic, long count) throws InterruptedException {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", bootstrap);
        properties.setProperty("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.setProperty("value.deserializer", ByteArrayDeserializer.class.getName());
        List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
        long until = System.nanoTime() + Duration.ofSeconds(SECONDS_MAX).toNanos();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            while (consumer.endOffsets(partitions).get(partitions.get(0)) < count) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("the topic does not get all messages");
                }
                Thread.sleep(5);
            }
        }
    }
}

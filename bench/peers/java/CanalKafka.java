import com.alibaba.otter.canal.connector.core.producer.MQDestination;
import com.alibaba.otter.canal.connector.core.util.Callback;
import com.alibaba.otter.canal.connector.kafka.producer.CanalKafkaProducer;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

/**
 * Canal's mode for message queues: the loop of its CanalMQStarter over an embedded server, with its own producer for
 * Kafka and flat messages. Entries of transactions are filtered, as its option does it.
 * Arguments: host port user password file position database tail-table bootstrap topic.
 */
public final class CanalKafka {
    private static final String NAME = "bench";
    private static final int BATCH_ENTRIES = 1000;

    public static void main(String[] args) throws Exception {
        System.setProperty("canal.instance.filter.transaction.entry", "true");
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(NAME);
        canal.setCanalParameter(CanalReader.parameters(args));
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> new CanalInstanceWithManager(canal, args[6] + "\\..*"));
        server.start();
        server.start(NAME);
        ClientIdentity client = new ClientIdentity(NAME, (short) 1001, args[6] + "\\..*");
        server.subscribe(client);
        CanalKafkaProducer producer = new CanalKafkaProducer();
        producer.init(properties(args[8]));
        MQDestination destination = new MQDestination();
        destination.setCanalDestination(NAME);
        destination.setTopic(args[9]);
        destination.setPartition(0);
        Window window = new Window();
        while (true) {
            Message message = server.getWithoutAck(client, BATCH_ENTRIES, 100L, TimeUnit.MILLISECONDS);
            if (message.getId() == -1 || message.getEntries().isEmpty()) {
                continue;
            }
            boolean last = cutAtTail(message, args[7]);
            if (!message.getEntries().isEmpty()) {
                window.begin();
                window.inserts += message.getEntries().size();
                send(server, client, producer, destination, message);
            }
            if (last) {
                System.out.println(window.end());
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
        }
    }

    /** Returns when the broker has acknowledged the messages: the producer flushes after each batch. */
    private static void send(
            CanalServerWithEmbedded server,
            ClientIdentity client,
            CanalKafkaProducer producer,
            MQDestination destination,
            Message message) {
        producer.send(destination, message, new Callback() {
            @Override
            public void commit() {
                server.ack(client, message.getId());
            }

            @Override
            public void rollback() {
                System.err.println("Error: a batch was not sent");
                Runtime.getRuntime().halt(1);
            }
        });
    }

    private static boolean cutAtTail(Message message, String tail) {
        List<CanalEntry.Entry> entries = message.getEntries();
        for (int at = 0; at < entries.size(); at++) {
            if (tail.equals(entries.get(at).getHeader().getTableName())) {
                message.setEntries(List.copyOf(entries.subList(0, at)));
                return true;
            }
        }
        return false;
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.setProperty("canal.mq.flatMessage", "true");
        properties.setProperty("kafka.bootstrap.servers", bootstrap);
        properties.setProperty("kafka.acks", "all");
        properties.setProperty("kafka.compression.type", "lz4");
        properties.setProperty("kafka.batch.size", "1000000");
        properties.setProperty("kafka.linger.ms", "1");
        properties.setProperty("kafka.max.request.size", "1048576");
        properties.setProperty("kafka.buffer.memory", "67108864");
        properties.setProperty("kafka.max.in.flight.requests.per.connection", "1");
        return properties;
    }
}

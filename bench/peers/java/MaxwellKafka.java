import com.zendesk.maxwell.Maxwell;
import com.zendesk.maxwell.MaxwellConfig;
import com.zendesk.maxwell.MaxwellContext;
import com.zendesk.maxwell.monitoring.MaxwellDiagnostic;
import com.zendesk.maxwell.producer.AbstractProducer;
import com.zendesk.maxwell.producer.MaxwellKafkaProducer;
import com.zendesk.maxwell.row.RowMap;
import com.zendesk.maxwell.util.StoppableTask;
import java.util.Map;

/**
 * Maxwell with its own producer for Kafka, from a place of the log to the last message that the broker has
 * acknowledged. Arguments: host port user password file position database tail-table bootstrap topic.
 */
public final class MaxwellKafka {
    public static void main(String[] args) throws Exception {
        MaxwellConfig config = new MaxwellConfig(new String[] {
            "--host=" + args[0], "--port=" + args[1], "--user=" + args[2], "--password=" + args[3],
            "--jdbc_options=useSSL=false", "--replica_server_id=94029", "--log_level=error",
            "--init_position=" + args[4] + ":" + args[5] + ":0", "--bootstrapper=none",
            "--filter=exclude: *.*, include: " + args[6] + ".*",
            "--producer=kafka", "--kafka_topic=" + args[9], "--kafka.bootstrap.servers=" + args[8]
        });
        config.getKafkaProperties().putAll(Map.of(
                "acks", "all", "compression.type", "lz4", "linger.ms", "5", "batch.size", "1000000",
                "max.request.size", "1048576", "buffer.memory", "67108864"));
        config.producerFactory = context -> new Watched(context, args);
        new Maxwell(config).run();
        System.err.println("Error: Maxwell ended before the log did");
        Runtime.getRuntime().halt(1);
    }

    private static final class Watched extends AbstractProducer {
        private final Window window = new Window();
        private final String[] args;
        private final MaxwellKafkaProducer inner;

        Watched(MaxwellContext context, String[] args) {
            super(context);
            this.args = args;
            this.inner = new MaxwellKafkaProducer(context, context.getConfig().getKafkaProperties(), args[9]);
        }

        @Override
        public void push(RowMap row) throws Exception {
            if (args[6].equals(row.getDatabase())) {
                if (args[7].equals(row.getTable())) {
                    TopicEnd.await(args[8], args[9], window.inserts + window.updates + window.deletes);
                    System.out.println(window.end());
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
                window.begin();
                switch (row.getRowType()) {
                    case "insert" -> window.inserts++;
                    case "update" -> window.updates++;
                    case "delete" -> window.deletes++;
                    default -> throw new IllegalStateException("operation " + row.getRowType());
                }
            }
            inner.push(row);
        }

        @Override
        public StoppableTask getStoppableTask() {
            return inner.getStoppableTask();
        }

        @Override
        public MaxwellDiagnostic getDiagnostic() {
            return inner.getDiagnostic();
        }
    }
}

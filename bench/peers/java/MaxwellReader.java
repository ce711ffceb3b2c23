import com.zendesk.maxwell.Maxwell;
import com.zendesk.maxwell.MaxwellConfig;
import com.zendesk.maxwell.MaxwellContext;
import com.zendesk.maxwell.producer.AbstractProducer;
import com.zendesk.maxwell.row.RowMap;

/**
 * Maxwell reads the log from a place on; a producer of ours makes each row into the JSON that Maxwell hands out, and
 * counts it. It keeps its own tables in the database `maxwell` of the source, as it does.
 * Arguments: host port user password file position database tail-table.
 */
public final class MaxwellReader {
    public static void main(String[] args) throws Exception {
        MaxwellConfig config = new MaxwellConfig(new String[] {
            "--host=" + args[0], "--port=" + args[1], "--user=" + args[2], "--password=" + args[3],
            "--jdbc_options=useSSL=false", "--replica_server_id=94009", "--log_level=error",
            "--init_position=" + args[4] + ":" + args[5] + ":0",
            "--bootstrapper=none"
        });
        config.producerFactory = context -> new Counter(context, args[6], args[7]);
        new Maxwell(config).run();
        System.err.println("Error: Maxwell ended before the log did");
        Runtime.getRuntime().halt(1);
    }

    private static final class Counter extends AbstractProducer {
        private final Window window = new Window();
        private final String database;
        private final String tail;
        private long characters;

        Counter(MaxwellContext context, String database, String tail) {
            super(context);
            this.database = database;
            this.tail = tail;
        }

        @Override
        public void push(RowMap row) throws Exception {
            if (database.equals(row.getDatabase())) {
                if (tail.equals(row.getTable())) {
                    System.out.println(window.end());
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
                window.begin();
                characters += row.toJSON(outputConfig).length();
                switch (row.getRowType()) {
                    case "insert" -> window.inserts++;
                    case "update" -> window.updates++;
                    case "delete" -> window.deletes++;
                    default -> throw new IllegalStateException("operation " + row.getRowType());
                }
            }
            context.setPosition(row);
        }
    }
}

import com.zendesk.maxwell.Maxwell;
import com.zendesk.maxwell.MaxwellConfig;
import com.zendesk.maxwell.MaxwellContext;
import com.zendesk.maxwell.producer.AbstractProducer;
import com.zendesk.maxwell.row.RowMap;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Prints Maxwell's messages: key, tab, value, up to the first one of the tail table.
 * Arguments: host port user password file position database tail-table.
 */
public final class MaxwellMessages {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        MaxwellConfig config = new MaxwellConfig(new String[] {
            "--host=" + args[0], "--port=" + args[1], "--user=" + args[2], "--password=" + args[3],
            "--jdbc_options=useSSL=false", "--replica_server_id=94019", "--log_level=error",
            "--init_position=" + args[4] + ":" + args[5] + ":0",
            "--bootstrapper=none", "--output_thread_id=true", "--output_server_id=true",
            "--output_primary_keys=true", "--output_primary_key_columns=true", "--output_binlog_position=true"
        });
        config.producerFactory = context -> new Printer(context, args[6], args[7]);
        new Maxwell(config).run();
        System.err.println("Error: Maxwell ended before the log did");
        Runtime.getRuntime().halt(1);
    }

    private static final class Printer extends AbstractProducer {
        private final String database;
        private final String tail;

        Printer(MaxwellContext context, String database, String tail) {
            super(context);
            this.database = database;
            this.tail = tail;
        }

        @Override
        public void push(RowMap row) throws Exception {
            if (database.equals(row.getDatabase())) {
                if (tail.equals(row.getTable())) {
                    OUT.flush();
                    Runtime.getRuntime().halt(0);
                }
                OUT.println(row.pkToJson(RowMap.KeyFormat.HASH) + "\t" + row.toJSON(outputConfig));
            }
            context.setPosition(row);
        }
    }
}

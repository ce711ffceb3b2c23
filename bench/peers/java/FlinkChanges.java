import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.cdc.connectors.shaded.org.apache.kafka.connect.data.Struct;
import org.apache.flink.cdc.connectors.shaded.org.apache.kafka.connect.source.SourceRecord;
import org.apache.flink.cdc.debezium.DebeziumDeserializationSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.util.Collector;

/**
 * A job of Flink CDC that reads a log, in a cluster of one process; one reader, as it has for the log. What it
 * has made of a change (a Connect record) goes no further: the letter of its operation takes its place, and the
 * sink counts these. A job that makes RowData or JSON of it does more.
 */
final class FlinkChanges {
    private static final Window WINDOW = new Window();
    private static final String END = "end";

    /** Ends the process when the log has. */
    static void count(Source<String, ?, ?> source) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        environment.enableCheckpointing(3000);
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "log").addSink(new Count());
        environment.execute("bench");
        throw new IllegalStateException("the job ended before the log did");
    }

    /** The letters. `tail`: the table whose first row ends the log. */
    static final class Operations implements DebeziumDeserializationSchema<String> {
        private static final long serialVersionUID = 1L;
        private final String tail;

        Operations(String tail) {
            this.tail = tail;
        }

        @Override
        public void deserialize(SourceRecord record, Collector<String> out) {
            if (!(record.value() instanceof Struct value) || value.schema().field("op") == null) {
                return;
            }
            WINDOW.begin();
            boolean ends = tail.equals(value.getStruct("source").getString("table"));
            out.collect(ends ? END : value.getString("op"));
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    private static final class Count implements SinkFunction<String> {
        private static final long serialVersionUID = 1L;

        @Override
        public void invoke(String operation, Context context) {
            switch (operation) {
                case "c" -> WINDOW.inserts++;
                case "u" -> WINDOW.updates++;
                case "d" -> WINDOW.deletes++;
                case END -> {
                    System.out.println(WINDOW.end());
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
                default -> throw new IllegalStateException("operation " + operation);
            }
        }
    }
}

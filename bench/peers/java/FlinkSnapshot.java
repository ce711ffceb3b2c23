import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cdc.connectors.mysql.source.MySqlSource;
import org.apache.flink.cdc.connectors.mysql.table.StartupOptions;
import org.apache.flink.cdc.connectors.shaded.org.apache.kafka.connect.data.Struct;
import org.apache.flink.cdc.connectors.shaded.org.apache.kafka.connect.source.SourceRecord;
import org.apache.flink.cdc.debezium.DebeziumDeserializationSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.util.Collector;

/**
 * Flink CDC's incremental snapshot of a table, in a cluster of one process. What it has made of a row (a Connect
 * record) goes no further: a number takes its place, and the sink counts these. A job that makes RowData or JSON of
 * it does more. Arguments: host port user password database table parallelism.
 */
public final class FlinkSnapshot {
    private static final Window WINDOW = new Window();
    private static final LongAdder ROWS = new LongAdder();

    public static void main(String[] args) throws Exception {
        int parallelism = Integer.parseInt(args[6]);
        Properties jdbc = new Properties();
        jdbc.setProperty("useSSL", "false");
        Properties debezium = new Properties();
        debezium.setProperty("database.ssl.mode", "disabled");
        MySqlSource<Integer> source = MySqlSource.<Integer>builder()
                .hostname(args[0])
                .port(Integer.parseInt(args[1]))
                .username(args[2])
                .password(args[3])
                .databaseList(args[4])
                .tableList(args[4] + "." + args[5])
                .serverId("94010-" + (94010 + parallelism - 1))
                .serverTimeZone("UTC")
                .startupOptions(StartupOptions.snapshot())
                .splitSize(50_000)
                .fetchSize(10_000)
                .connectTimeout(Duration.ofSeconds(30))
                .jdbcProperties(jdbc)
                .debeziumProperties(debezium)
                .deserializer(new Numbers())
                .build();
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, new Configuration());
        environment.enableCheckpointing(3000);
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "table").addSink(new Count());
        environment.execute("load");
        WINDOW.inserts = ROWS.sum();
        System.out.println(WINDOW.end());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static final class Numbers implements DebeziumDeserializationSchema<Integer> {
        private static final long serialVersionUID = 1L;
        private transient boolean begun;

        @Override
        public void deserialize(SourceRecord record, Collector<Integer> out) {
            if (!begun) {
                begun = true;
                synchronized (WINDOW) {
                    WINDOW.begin();
                }
            }
            String operation = ((Struct) record.value()).getString("op");
            if (!"r".equals(operation)) {
                throw new IllegalStateException("operation " + operation);
            }
            out.collect(1);
        }

        @Override
        public TypeInformation<Integer> getProducedType() {
            return Types.INT;
        }
    }

    private static final class Count implements SinkFunction<Integer> {
        private static final long serialVersionUID = 1L;

        @Override
        public void invoke(Integer row, Context context) {
            ROWS.increment();
        }
    }
}

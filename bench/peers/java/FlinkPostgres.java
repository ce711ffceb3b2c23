import java.util.Properties;
import org.apache.flink.cdc.connectors.base.options.StartupOptions;
import org.apache.flink.cdc.connectors.base.source.jdbc.JdbcIncrementalSource;
import org.apache.flink.cdc.connectors.postgres.source.PostgresSourceBuilder;

/**
 * Flink CDC reads the log of PostgreSQL from where the slot stands. Arguments: host port user password database
 * schema.table,… slot publication tail-table.
 */
public final class FlinkPostgres {
    public static void main(String[] args) throws Exception {
        Properties debezium = new Properties();
        debezium.setProperty("database.sslmode", "disable");
        debezium.setProperty("publication.name", args[7]);
        debezium.setProperty("publication.autocreate.mode", "disabled");
        JdbcIncrementalSource<String> source = PostgresSourceBuilder.PostgresIncrementalSource.<String>builder()
                .hostname(args[0])
                .port(Integer.parseInt(args[1]))
                .username(args[2])
                .password(args[3])
                .database(args[4])
                .schemaList("public")
                .tableList(args[5].split(","))
                .slotName(args[6])
                .decodingPluginName("pgoutput")
                .startupOptions(StartupOptions.committed())
                .debeziumProperties(debezium)
                .deserializer(new FlinkChanges.Operations(args[8]))
                .build();
        FlinkChanges.count(source);
    }
}

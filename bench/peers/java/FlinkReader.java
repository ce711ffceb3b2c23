import java.util.Properties;
import org.apache.flink.cdc.connectors.mysql.source.MySqlSource;
import org.apache.flink.cdc.connectors.mysql.table.StartupOptions;

/**
 * Flink CDC reads the log of MySQL from a place on. Arguments: host port user password file position database
 * tail-table.
 */
public final class FlinkReader {
    public static void main(String[] args) throws Exception {
        Properties jdbc = new Properties();
        jdbc.setProperty("useSSL", "false");
        Properties debezium = new Properties();
        debezium.setProperty("database.ssl.mode", "disabled");
        MySqlSource<String> source = MySqlSource.<String>builder()
                .hostname(args[0])
                .port(Integer.parseInt(args[1]))
                .username(args[2])
                .password(args[3])
                .databaseList(args[6])
                .tableList(args[6] + "\\..*")
                .serverId("94008")
                .serverTimeZone("UTC")
                .startupOptions(StartupOptions.specificOffset(args[4], Long.parseLong(args[5])))
                .jdbcProperties(jdbc)
                .debeziumProperties(debezium)
                .deserializer(new FlinkChanges.Operations(args[7]))
                .build();
        FlinkChanges.count(source);
    }
}

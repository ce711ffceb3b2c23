import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.json.JsonBinary;
import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * mysql-binlog-connector-java reads the log with its default deserialization; JSON columns are made into text, as
 * Debezium and Maxwell do. Arguments: host port user password file position table tail-table json-column-index.
 */
public final class BinlogConnector {
    private final Window window = new Window();
    private final Map<Long, String> tables = new HashMap<>();
    private final String table;
    private final String tail;
    private final int json;
    private long jsonCharacters;

    private BinlogConnector(String table, String tail, int json) {
        this.table = table;
        this.tail = tail;
        this.json = json;
    }

    public static void main(String[] args) throws IOException {
        BinaryLogClient client = new BinaryLogClient(args[0], Integer.parseInt(args[1]), args[2], args[3]);
        client.setServerId(94001);
        client.setBinlogFilename(args[4]);
        client.setBinlogPosition(Long.parseLong(args[5]));
        BinlogConnector reader = new BinlogConnector(args[6], args[7], Integer.parseInt(args[8]));
        client.registerEventListener(event -> reader.onEvent(event.getData()));
        client.registerLifecycleListener(new BinaryLogClient.AbstractLifecycleListener() {
            @Override
            public void onEventDeserializationFailure(BinaryLogClient client, Exception error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        client.connect();
    }

    private void onEvent(EventData data) {
        if (data instanceof TableMapEventData map) {
            tables.put(map.getTableId(), map.getTable());
        } else if (data instanceof WriteRowsEventData event) {
            String name = tables.get(event.getTableId());
            if (tail.equals(name)) {
                System.out.println(window.end());
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            if (table.equals(name)) {
                window.begin();
                window.inserts += event.getRows().size();
                event.getRows().forEach(this::jsonToText);
            }
        } else if (data instanceof UpdateRowsEventData event && table.equals(tables.get(event.getTableId()))) {
            window.updates += event.getRows().size();
            for (Map.Entry<Serializable[], Serializable[]> row : event.getRows()) {
                jsonToText(row.getKey());
                jsonToText(row.getValue());
            }
        } else if (data instanceof DeleteRowsEventData event && table.equals(tables.get(event.getTableId()))) {
            window.deletes += event.getRows().size();
            List<Serializable[]> rows = event.getRows();
            rows.forEach(this::jsonToText);
        }
    }

    private void jsonToText(Serializable[] row) {
        if (row[json] instanceof byte[] bytes) {
            try {
                jsonCharacters += JsonBinary.parseAsString(bytes).length();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}

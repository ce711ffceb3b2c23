import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.ColumnType;
import com.github.shyiko.mysql.binlog.event.deserialization.json.JsonBinary;
import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * mysql-binlog-connector-java reads the log with its default deserialization; JSON columns are made into text, as
 * Debezium and Maxwell do. Arguments: host port user password file position database tail-table.
 */
public final class BinlogConnector {
    /** A table of the log: whether its changes are counted, whether it is the tail, which columns are JSON. */
    private record Table(boolean counted, boolean tail, int[] json) {}

    private final Window window = new Window();
    private final Map<Long, Table> tables = new HashMap<>();
    private final String database;
    private final String tail;
    private long jsonCharacters;

    private BinlogConnector(String database, String tail) {
        this.database = database;
        this.tail = tail;
    }

    public static void main(String[] args) throws IOException {
        BinaryLogClient client = new BinaryLogClient(args[0], Integer.parseInt(args[1]), args[2], args[3]);
        client.setServerId(94001);
        client.setBinlogFilename(args[4]);
        client.setBinlogPosition(Long.parseLong(args[5]));
        BinlogConnector reader = new BinlogConnector(args[6], args[7]);
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
            tables.computeIfAbsent(map.getTableId(), id -> table(map));
        } else if (data instanceof WriteRowsEventData event) {
            Table table = tables.get(event.getTableId());
            if (table.tail()) {
                System.out.println(window.end());
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            if (table.counted()) {
                window.begin();
                window.inserts += event.getRows().size();
                event.getRows().forEach(row -> jsonToText(table, row));
            }
        } else if (data instanceof UpdateRowsEventData event && tables.get(event.getTableId()).counted()) {
            window.updates += event.getRows().size();
            for (Map.Entry<Serializable[], Serializable[]> row : event.getRows()) {
                jsonToText(tables.get(event.getTableId()), row.getKey());
                jsonToText(tables.get(event.getTableId()), row.getValue());
            }
        } else if (data instanceof DeleteRowsEventData event && tables.get(event.getTableId()).counted()) {
            window.deletes += event.getRows().size();
            event.getRows().forEach(row -> jsonToText(tables.get(event.getTableId()), row));
        }
    }

    private Table table(TableMapEventData map) {
        boolean ours = database.equals(map.getDatabase());
        boolean isTail = ours && tail.equals(map.getTable());
        byte[] types = map.getColumnTypes();
        int[] json = IntStream.range(0, types.length)
                .filter(column -> (types[column] & 0xFF) == ColumnType.JSON.getCode())
                .toArray();
        return new Table(ours && !isTail, isTail, json);
    }

    private void jsonToText(Table table, Serializable[] row) {
        for (int column : table.json()) {
            if (row[column] instanceof byte[] bytes) {
                try {
                    jsonCharacters += JsonBinary.parseAsString(bytes).length();
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }
}

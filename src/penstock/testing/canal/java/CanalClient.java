package penstock.testing;

import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.client.impl.ClusterCanalConnector;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Canal's own client, told by lines what to do, and telling by lines what it got. Arguments: host port destination
 * user password; instead of host and port, "zookeeper" and its addresses. Requests, each with one answer:
 *
 * <pre>
 * connect                  ok
 * subscribe FILTER         ok        (empty: the destination's own)
 * unsubscribe              ok
 * get SIZE MILLISECONDS    batch ID COUNT, then COUNT lines with an entry in Base64; a negative time: do not wait
 * rows SIZE MILLISECONDS   batch ID COUNT, then COUNT lines with a JSON array for each row: event, database, table, file,
 *                          position, and the columns before and after the change; or the SQL of a statement
 * ack ID, rollback ID      ok        (rollback 0: everything)
 * disconnect               ok
 * </pre>
 *
 * A request that fails is answered with "error" and the message. The program ends with its input.
 */
public final class CanalClient {
    private CanalClient() {}

    public static void main(String[] args) throws Exception {
        CanalConnector connector = args[0].equals("zookeeper")
                ? clustered(args)
                : CanalConnectors.newSingleConnector(
                        new InetSocketAddress(args[0], Integer.parseInt(args[1])), args[2], args[3], args[4]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            try {
                answer(connector, line.split(" ", 3), out);
            } catch (Exception error) {
                out.println("error " + String.valueOf(error.getMessage()).replace('\n', ' '));
            }
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Finds the server in ZooKeeper, tries again soon, and gives up only after half a minute. */
    private static CanalConnector clustered(String[] args) {
        ClusterCanalConnector connector =
                (ClusterCanalConnector) CanalConnectors.newClusterConnector(args[1], args[2], args[3], args[4]);
        connector.setRetryTimes(150);
        connector.setRetryInterval(200);
        connector.setSoTimeout(10000); // a server that was suspended closes no connection
        return connector;
    }

    private static void answer(CanalConnector connector, String[] words, PrintStream out) throws Exception {
        String request = words[0];
        if (request.equals("get") || request.equals("rows")) {
            long milliseconds = Long.parseLong(words[2]);
            int size = Integer.parseInt(words[1]);
            Message message = milliseconds < 0
                    ? connector.getWithoutAck(size)
                    : connector.getWithoutAck(size, Long.valueOf(milliseconds), TimeUnit.MILLISECONDS);
            if (request.equals("get")) {
                print(message, out);
            } else {
                printRows(message, out);
            }
            return;
        }
        if (request.equals("connect")) {
            connector.connect();
        } else if (request.equals("subscribe")) {
            connector.subscribe(words.length > 1 ? words[1] : "");
        } else if (request.equals("unsubscribe")) {
            connector.unsubscribe();
        } else if (request.equals("ack")) {
            connector.ack(Long.parseLong(words[1]));
        } else if (request.equals("rollback")) {
            long batch = Long.parseLong(words[1]);
            if (batch == 0) {
                connector.rollback();
            } else {
                connector.rollback(batch);
            }
        } else if (request.equals("disconnect")) {
            connector.disconnect();
        } else {
            throw new IllegalArgumentException("unknown request " + request);
        }
        out.println("ok");
    }

    private static void print(Message message, PrintStream out) {
        List entries = message.getEntries();
        out.println("batch " + message.getId() + " " + entries.size());
        for (int index = 0; index < entries.size(); index++) {
            CanalEntry.Entry entry = (CanalEntry.Entry) entries.get(index);
            out.println(Base64.getEncoder().encodeToString(entry.toByteArray()));
        }
    }

    private static void printRows(Message message, PrintStream out) throws Exception {
        StringBuilder lines = new StringBuilder();
        int count = 0;
        List entries = message.getEntries();
        for (int index = 0; index < entries.size(); index++) {
            CanalEntry.Entry entry = (CanalEntry.Entry) entries.get(index);
            if (entry.getEntryType() != CanalEntry.EntryType.ROWDATA) {
                continue;
            }
            CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
            if (change.getSql().length() > 0) {
                head(entry, change, lines);
                lines.append(',');
                text(change.getSql(), lines);
                lines.append("]\n");
                count++;
            }
            for (int number = 0; number < change.getRowDatasCount(); number++) {
                CanalEntry.RowData row = change.getRowDatas(number);
                head(entry, change, lines);
                lines.append(',');
                columns(row.getBeforeColumnsList(), lines);
                lines.append(',');
                columns(row.getAfterColumnsList(), lines);
                lines.append("]\n");
                count++;
            }
        }
        out.println("batch " + message.getId() + " " + count);
        out.print(lines);
    }

    private static void head(CanalEntry.Entry entry, CanalEntry.RowChange change, StringBuilder out) {
        CanalEntry.Header header = entry.getHeader();
        out.append('[');
        text(change.getEventType().name(), out);
        out.append(',');
        text(header.getSchemaName(), out);
        out.append(',');
        text(header.getTableName(), out);
        out.append(',');
        text(header.getLogfileName(), out);
        out.append(',').append(header.getLogfileOffset());
    }

    private static void columns(List columns, StringBuilder out) {
        out.append('{');
        for (int index = 0; index < columns.size(); index++) {
            CanalEntry.Column column = (CanalEntry.Column) columns.get(index);
            if (index > 0) {
                out.append(',');
            }
            text(column.getName(), out);
            out.append(':');
            if (column.getIsNull()) {
                out.append("null");
            } else {
                text(column.getValue(), out);
            }
        }
        out.append('}');
    }

    private static void text(String value, StringBuilder out) {
        out.append('"');
        for (int index = 0; index < value.length(); index++) {
            char letter = value.charAt(index);
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ' || letter > '~') {
                out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(letter)}));
            } else {
                out.append(letter);
            }
        }
        out.append('"');
    }
}

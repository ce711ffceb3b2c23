import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What Canal's own class makes of its rules. Lines of the input, with tabs: `topic RULES DATABASE TABLE` prints
 * the topic (`-`: the default one); `partition RULES DATABASE TABLE PARTITIONS BY_DATABASE KEY COLUMN=VALUE...` prints
 * the partition. KEY: names of the key's columns, with commas.
 */
public final class CanalRules {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            out.println(fields[0].equals("topic") ? topic(fields) : partition(fields));
        }
    }

    private static String topic(String[] fields) {
        CanalEntry.Header header =
                CanalEntry.Header.newBuilder().setSchemaName(fields[2]).setTableName(fields[3]).build();
        CanalEntry.Entry entry = CanalEntry.Entry.newBuilder()
                .setHeader(header)
                .setEntryType(CanalEntry.EntryType.ROWDATA)
                .build();
        Message message = new Message(1, new ArrayList<>(List.of(entry)));
        return MQMessageUtils.messageTopics(message, "-", fields[1]).keySet().iterator().next().replace('.', '_');
    }

    private static String partition(String[] fields) {
        FlatMessage message = new FlatMessage(1);
        message.setIsDdl(false);
        message.setDatabase(fields[2]);
        message.setTable(fields[3]);
        message.setType("INSERT");
        if (!fields[6].isEmpty()) {
            for (String name : fields[6].split(",")) {
                message.addPkName(name);
            }
        }
        Map<String, String> row = new HashMap<>();
        for (int index = 7; index < fields.length; index++) {
            int at = fields[index].indexOf('=');
            row.put(fields[index].substring(0, at), fields[index].substring(at + 1));
        }
        message.setData(List.of(row));
        int partitions = Integer.parseInt(fields[4]);
        FlatMessage[] found =
                MQMessageUtils.messagePartition(message, partitions, fields[1], Boolean.parseBoolean(fields[5]));
        for (int index = 0; index < found.length; index++) {
            if (found[index] != null) {
                return String.valueOf(index);
            }
        }
        return "none";
    }
}

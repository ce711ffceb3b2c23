import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.MessageOrBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Canal's entries as JSON, one a line, and its flat messages. Arguments: host port user password file position
 * database tail-table. Without arguments it prints entries that come in Base64, one a line, in the same way.
 */
public final class CanalEntries {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                print(CanalEntry.Entry.parseFrom(Base64.getDecoder().decode(line)));
            }
            return;
        }
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName("entries");
        canal.setCanalParameter(parameters(args));
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> new CanalInstanceWithManager(canal, args[6] + "\\..*"));
        server.start();
        server.start("entries");
        ClientIdentity client = new ClientIdentity("entries", (short) 1001, args[6] + "\\..*");
        server.subscribe(client);
        ThreadPoolExecutor pool = (ThreadPoolExecutor) Executors.newFixedThreadPool(1);
        while (true) {
            Message message = server.getWithoutAck(client, 1000, 1L, TimeUnit.SECONDS);
            if (message.getId() == -1) {
                continue;
            }
            boolean last = false;
            List<CanalEntry.Entry> entries = new ArrayList<>();
            for (CanalEntry.Entry entry : message.getEntries()) {
                last = last || args[7].equals(entry.getHeader().getTableName());
                if (!last) {
                    print(entry);
                    entries.add(entry);
                }
            }
            Message kept = new Message(message.getId(), entries);
            for (FlatMessage flat :
                    MQMessageUtils.messageConverter(MQMessageUtils.buildMessageData(kept, pool), 1L)) {
                OUT.println("flat\t" + JSON.toJSONString(flat, JSONWriter.Feature.WriteNulls));
            }
            server.ack(client, message.getId());
            if (last) {
                Runtime.getRuntime().halt(0);
            }
        }
    }

    private static void print(CanalEntry.Entry entry) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("type", entry.getEntryType().name());
        found.put("header", json(entry.getHeader()));
        switch (entry.getEntryType()) {
            case TRANSACTIONBEGIN -> found.put(
                    "stored", json(CanalEntry.TransactionBegin.parseFrom(entry.getStoreValue())));
            case TRANSACTIONEND -> found.put(
                    "stored", json(CanalEntry.TransactionEnd.parseFrom(entry.getStoreValue())));
            default -> found.put("stored", json(CanalEntry.RowChange.parseFrom(entry.getStoreValue())));
        }
        OUT.println("entry\t" + JSON.toJSONString(found));
    }

    private static Object json(Object value) {
        if (value instanceof List<?> items) {
            return items.stream().map(CanalEntries::json).toList();
        }
        if (value instanceof ByteString bytes) {
            return bytes.toStringUtf8();
        }
        if (!(value instanceof MessageOrBuilder message)) {
            return value instanceof Number || value instanceof Boolean ? value : value.toString();
        }
        if (!message.getUnknownFields().asMap().isEmpty()) {
            throw new IllegalStateException("unknown fields: " + message);
        }
        Map<String, Object> found = new LinkedHashMap<>();
        for (Map.Entry<FieldDescriptor, Object> field : message.getAllFields().entrySet()) {
            found.put(field.getKey().getName(), json(field.getValue()));
        }
        return found;
    }

    private static CanalParameter parameters(String[] args) {
        CanalParameter parameter = new CanalParameter();
        parameter.setIndexMode(CanalParameter.IndexMode.MEMORY);
        parameter.setDbUsername(args[2]);
        parameter.setDbPassword(args[3]);
        parameter.setDefaultDatabaseName(args[6]);
        parameter.setGroupDbAddresses(List.of(List.of(new CanalParameter.DataSourcing(
                CanalParameter.SourcingType.MYSQL, new InetSocketAddress(args[0], Integer.parseInt(args[1]))))));
        parameter.setPositions(
                List.of("{\"journalName\":\"" + args[4] + "\",\"position\":" + args[5] + ",\"timestamp\":0}"));
        parameter.setSlaveId(94007L);
        parameter.setDetectingEnable(false);
        parameter.setTsdbEnable(false);
        parameter.setGtidEnable(false);
        parameter.setParallel(false);
        parameter.setMemoryStorageRawEntry(false);
        return parameter;
    }
}

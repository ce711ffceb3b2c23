import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Canal's embedded server reads the log; its client, in the same process, gets entries in batches, parses each into
 * its rows and acknowledges the batch. The parser works serially, which is quicker on few cores; the buffer in
 * memory has Canal's own size. Arguments: host port user password file position database tail-table.
 */
public final class CanalReader {
    private static final String NAME = "bench";
    private static final int BATCH_ENTRIES = 5000;

    public static void main(String[] args) throws Exception {
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(NAME);
        canal.setCanalParameter(parameters(args));
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> new CanalInstanceWithManager(canal, args[6] + "\\..*"));
        server.start();
        server.start(NAME);
        ClientIdentity client = new ClientIdentity(NAME, (short) 1001, args[6] + "\\..*");
        server.subscribe(client);
        Window window = new Window();
        while (true) {
            Message message = server.getWithoutAck(client, BATCH_ENTRIES, 1L, TimeUnit.SECONDS);
            if (message.getId() == -1) {
                continue;
            }
            for (CanalEntry.Entry entry : message.getEntries()) {
                onEntry(entry, window, args[7]);
            }
            server.ack(client, message.getId());
        }
    }

    private static void onEntry(CanalEntry.Entry entry, Window window, String tail) throws Exception {
        if (entry.getEntryType() != CanalEntry.EntryType.ROWDATA) {
            return;
        }
        if (tail.equals(entry.getHeader().getTableName())) {
            System.out.println(window.end());
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
        window.begin();
        CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
        int rows = change.getRowDatasCount();
        switch (change.getEventType()) {
            case INSERT -> window.inserts += rows;
            case UPDATE -> window.updates += rows;
            case DELETE -> window.deletes += rows;
            default -> throw new IllegalStateException("operation " + change.getEventType());
        }
    }

    static CanalParameter parameters(String[] args) {
        CanalParameter parameter = new CanalParameter();
        parameter.setIndexMode(CanalParameter.IndexMode.MEMORY);
        parameter.setDbUsername(args[2]);
        parameter.setDbPassword(args[3]);
        parameter.setDefaultDatabaseName(args[6]);
        parameter.setGroupDbAddresses(List.of(List.of(new CanalParameter.DataSourcing(
                CanalParameter.SourcingType.MYSQL, new InetSocketAddress(args[0], Integer.parseInt(args[1]))))));
        parameter.setPositions(
                List.of("{\"journalName\":\"" + args[4] + "\",\"position\":" + args[5] + ",\"timestamp\":0}"));
        parameter.setSlaveId(94006L);
        parameter.setDetectingEnable(false);
        parameter.setTsdbEnable(false);
        parameter.setGtidEnable(false);
        parameter.setParallel(false);
        parameter.setMemoryStorageRawEntry(false);
        return parameter;
    }
}

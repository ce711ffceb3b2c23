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
 * Canal's server with its positions in ZooKeeper. Its client acknowledges everything until nothing comes for some
 * seconds; the first column of each row is printed. Arguments: host port user password file position database
 * destination zookeeper. File and position count only where ZooKeeper has no position.
 */
public final class CanalOnZooKeeper {
    private static final int QUIET_MAX = 4;

    public static void main(String[] args) throws Exception {
        String destination = args[7];
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(destination);
        canal.setCanalParameter(parameters(args));
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> new CanalInstanceWithManager(canal, args[6] + "\\..*"));
        server.start();
        server.start(destination);
        ClientIdentity client = new ClientIdentity(destination, (short) 1001, args[6] + "\\..*");
        server.subscribe(client);
        boolean came = false;
        for (int quiet = 0; quiet < QUIET_MAX || !came; quiet++) {
            Message message = server.getWithoutAck(client, 100, 1L, TimeUnit.SECONDS);
            if (message.getId() == -1) {
                continue;
            }
            for (CanalEntry.Entry entry : message.getEntries()) {
                if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
                    came = true;
                    quiet = 0;
                    print(CanalEntry.RowChange.parseFrom(entry.getStoreValue()));
                }
            }
            server.ack(client, message.getId());
        }
        Runtime.getRuntime().halt(0);
    }

    private static void print(CanalEntry.RowChange change) {
        for (CanalEntry.RowData row : change.getRowDatasList()) {
            System.out.println("row " + row.getAfterColumns(0).getValue());
        }
    }

    private static CanalParameter parameters(String[] args) {
        CanalParameter parameter = new CanalParameter();
        parameter.setMetaMode(CanalParameter.MetaMode.ZOOKEEPER);
        parameter.setIndexMode(CanalParameter.IndexMode.META);
        parameter.setZkClusters(List.of(args[8]));
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

import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.List;

/**
 * Canal's server over TCP, with the destination `example`. It parses serially, which is quicker on few cores, and keeps
 * entries as they are sent; its buffer has Canal's own size. Arguments: host port user password file position database.
 */
public final class CanalServer {
    public static void main(String[] args) throws Exception {
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName("example");
        canal.setCanalParameter(parameters(args));
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> new CanalInstanceWithManager(canal, args[6] + "\\..*"));
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        CanalServerWithNetty netty = CanalServerWithNetty.instance();
        netty.setIp("127.0.0.1");
        netty.setPort(port);
        netty.start();
        server.start("example");
        System.out.println("{\"listening\": {\"canal\": \"127.0.0.1:" + port + "\"}}");
        System.out.flush();
        Thread.currentThread().join();
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
        parameter.setMemoryStorageRawEntry(true);
        return parameter;
    }
}

import java.util.ArrayList;
import java.util.List;

/** Fills five sixths of the heap with live objects, walks them in random order, and replaces a part. */
public final class Walk {
    private static final int PAYLOAD_BYTES = 200;
    /** Measured: header, fields and payload of a node, and its share of the table. */
    private static final int NODE_BYTES = 248;
    private static final int WALKS = 3;

    private static final class Node {
        final byte[] payload = new byte[PAYLOAD_BYTES];
        Node next;

        Node(int seed) {
            int x = seed;
            for (int i = 0; i < PAYLOAD_BYTES; i++) {
                x = x * 1103515245 + 12345;
                payload[i] = (byte) (x >> 16);
            }
        }
    }

    public static void main(String[] args) {
        int count = (int) (Runtime.getRuntime().maxMemory() / 6 * 5 / NODE_BYTES);
        List<Node> nodes = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            nodes.add(new Node(i));
        }
        long x = 12345;
        for (int i = 0; i < count; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            nodes.get(i).next = nodes.get((int) ((x >>> 33) % count));
        }
        for (int walk = 0; walk < WALKS; walk++) {
            System.out.println(walk + " " + sweep(nodes) + " " + jump(nodes, count / 20));
            for (int i = walk; i < count; i += 50) {
                Node fresh = new Node(i + walk + 1);
                fresh.next = nodes.get(i).next;
                nodes.set(i, fresh);
            }
        }
    }

    private static long sweep(List<Node> nodes) {
        long sum = 0;
        for (Node node : nodes) {
            for (byte value : node.payload) {
                sum = sum * 31 + value;
            }
        }
        return sum;
    }

    private static long jump(List<Node> nodes, int steps) {
        long sum = 0;
        Node node = nodes.get(0);
        for (int i = 0; i < steps; i++) {
            sum = sum * 31 + node.payload[i % PAYLOAD_BYTES];
            // Chains of random successors soon run in a circle: every few steps another begins.
            node = i % 16 == 15 ? nodes.get((int) ((i * 2654435761L) % nodes.size())) : node.next;
        }
        return sum;
    }
}

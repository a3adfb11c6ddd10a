import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;

/**
 * A wholesale company: warehouses of about 25 MB of live collections, one terminal for each, and a
 * mix of transactions in the manner of TPC-C. Stands in for SPECjbb2005. See README.md.
 *
 * <p>Money is in cents. Every update but the contents of strings can be done in any order with the
 * same result, so a run of a fixed number of transactions ends in the same state however its
 * threads interleave.
 */
public final class Jbb {
    static final int ITEMS = 20_000;
    static final int DISTRICTS = 10;
    /** Of each district. */
    static final int CUSTOMERS = 600;
    /** Of each district; older ones are dropped once they were delivered. */
    static final int ORDERS_KEPT = 600;
    /** Of each district. */
    static final int HISTORY_KEPT = 600;
    /** Ten orders in one are delivered at a time, so more than these never wait. */
    static final int UNDELIVERED_MAX = 200;
    /** Stock lies from 10 to 100; an order that would take it lower has 91 delivered. */
    static final int STOCK_LEAST = 10;
    static final int STOCK_DELIVERY = 91;

    enum Kind { NEW_ORDER, PAYMENT, ORDER_STATUS, DELIVERY, STOCK_LEVEL, CUSTOMER_REPORT }

    /** Cards of each kind in a deck, in the order of Kind. */
    static final int[] DECK = {10, 10, 1, 1, 1, 10};

    static final class Item {
        final int id;
        final int price;
        final String name;

        Item(int id, SplittableRandom random) {
            this.id = id;
            price = 100 + random.nextInt(9_901);
            name = text(random, 14, 24);
        }
    }

    static final class Stock {
        final Item item;
        final int first;
        final String[] district = new String[DISTRICTS];
        final int check;
        int quantity;
        long ordered;
        int orders;

        Stock(Item item, SplittableRandom random) {
            this.item = item;
            first = STOCK_LEAST + random.nextInt(STOCK_DELIVERY);
            quantity = first;
            for (int d = 0; d < DISTRICTS; d++) {
                district[d] = text(random, 24, 24);
            }
            check = contents(district);
        }

        void order(int count) {
            int left = quantity - count;
            quantity = left >= STOCK_LEAST ? left : left + STOCK_DELIVERY;
            ordered += count;
            orders++;
        }
    }

    static final class Customer {
        final int id;
        final int discount;
        final String name;
        final String data;
        final int check;
        long balance;
        long paid;
        int deliveries;
        Order last;

        Customer(int id, SplittableRandom random) {
            this.id = id;
            discount = random.nextInt(50);
            name = text(random, 12, 24);
            data = text(random, 300, 500);
            check = contents(data, name);
        }
    }

    record Line(Item item, int supplier, int count, long amount, String district) {}

    static final class Order {
        final int id;
        final Customer customer;
        final Line[] lines;
        boolean delivered;

        Order(int id, Customer customer, Line[] lines) {
            this.id = id;
            this.customer = customer;
            this.lines = lines;
        }

        long amount() {
            long sum = 0;
            for (Line line : lines) {
                sum += line.amount;
            }
            return sum * (100 - customer.discount) / 100;
        }
    }

    record Payment(Customer customer, long amount, String text) {}

    static final class District {
        final List<Customer> customers = new ArrayList<>(CUSTOMERS);
        final TreeMap<Integer, Order> orders = new TreeMap<>();
        final ArrayDeque<Order> undelivered = new ArrayDeque<>();
        final ArrayDeque<Payment> history = new ArrayDeque<>();
        int nextOrder = 1;
        long taken;
        long delivered;
    }

    static final class Warehouse {
        final int number;
        final Map<Integer, Stock> stock = new HashMap<>(2 * ITEMS);
        final District[] districts = new District[DISTRICTS];
        long taken;

        Warehouse(int number, Item[] items, SplittableRandom random) {
            this.number = number;
            for (Item item : items) {
                stock.put(item.id, new Stock(item, random));
            }
            for (int d = 0; d < DISTRICTS; d++) {
                districts[d] = new District();
                for (int c = 0; c < CUSTOMERS; c++) {
                    districts[d].customers.add(new Customer(c, random));
                }
            }
        }
    }

    final Item[] items = new Item[ITEMS];
    final Warehouse[] warehouses;

    Jbb(int count, long seed) {
        SplittableRandom random = new SplittableRandom(seed);
        for (int i = 0; i < ITEMS; i++) {
            items[i] = new Item(i, random);
        }
        warehouses = new Warehouse[count];
        for (int w = 0; w < count; w++) {
            warehouses[w] = new Warehouse(w, items, random.split());
        }
    }

    /** Wakes up periodically and goes through a table of its own, which nobody else looks at. */
    static final class Service extends Thread {
        /** Bytes of the table: 64 pages of 4 KiB. */
        static final int TABLE = 256 << 10;
        static final int PAGE = 4096;
        final byte[] table = new byte[TABLE];
        final long millis;
        volatile long rounds;

        Service(long millis) {
            super("service");
            this.millis = millis;
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                while (true) {
                    Thread.sleep(millis);
                    for (int at = 0; at < TABLE; at += PAGE) {
                        table[at]++;
                    }
                    rounds++;
                }
            } catch (InterruptedException e) {
                // Nobody does.
            }
        }
    }

    /** One who enters transactions, all for one warehouse as their home. */
    static final class Terminal extends Thread {
        final Jbb company;
        final Warehouse home;
        final SplittableRandom random;
        final Kind[] deck = new Kind[Arrays.stream(DECK).sum()];
        int card = deck.length;
        final long[] done = new long[Kind.values().length];
        /** What ends the run: a time of System.nanoTime, or a number of transactions. */
        final long until;
        final long most;
        /** Pieces ordered and orders placed, to be found again in the stock. */
        long pieces;
        long lines;
        /** So that nothing is computed for nobody. */
        int printed;

        Terminal(Jbb company, int number, long seed, long until, long most) {
            super("terminal-" + number);
            this.company = company;
            this.home = company.warehouses[number];
            this.until = until;
            this.most = most;
            random = new SplittableRandom(seed + 31L * number + 1);
            int at = 0;
            for (Kind kind : Kind.values()) {
                for (int n = 0; n < DECK[kind.ordinal()]; n++) {
                    deck[at++] = kind;
                }
            }
        }

        @Override
        public void run() {
            for (long n = 0; n < most && System.nanoTime() - until < 0; n++) {
                Kind kind = next();
                switch (kind) {
                    case NEW_ORDER -> newOrder();
                    case PAYMENT -> payment();
                    case ORDER_STATUS -> orderStatus();
                    case DELIVERY -> delivery();
                    case STOCK_LEVEL -> stockLevel();
                    case CUSTOMER_REPORT -> customerReport();
                }
                done[kind.ordinal()]++;
            }
        }

        /** The next card; the deck is shuffled when it is used up. */
        Kind next() {
            if (card == deck.length) {
                for (int i = deck.length - 1; i > 0; i--) {
                    int j = random.nextInt(i + 1);
                    Kind kind = deck[i];
                    deck[i] = deck[j];
                    deck[j] = kind;
                }
                card = 0;
            }
            return deck[card++];
        }

        District district() {
            return home.districts[random.nextInt(DISTRICTS)];
        }

        /** Some are picked more often than others, as by TPC-C's NURand. */
        int pick(int a, int n) {
            return ((random.nextInt(a + 1) | random.nextInt(n)) + 7) % n;
        }

        Customer customer(District district) {
            return district.customers.get(pick(255, CUSTOMERS));
        }

        /** Another warehouse in `percent` of 100 cases, if there is one. */
        Warehouse supplier(int percent) {
            Warehouse[] all = company.warehouses;
            if (all.length == 1 || random.nextInt(100) >= percent) {
                return home;
            }
            return all[(home.number + 1 + random.nextInt(all.length - 1)) % all.length];
        }

        void newOrder() {
            District district = district();
            Customer customer = customer(district);
            int d = Arrays.asList(home.districts).indexOf(district);
            Line[] lines = new Line[5 + random.nextInt(11)];
            for (int i = 0; i < lines.length; i++) {
                Warehouse supplier = supplier(1);
                int count = 1 + random.nextInt(10);
                synchronized (supplier) {
                    Stock stock = supplier.stock.get(pick(8191, ITEMS));
                    stock.order(count);
                    long amount = (long) count * stock.item.price;
                    lines[i] = new Line(stock.item, supplier.number, count, amount, stock.district[d]);
                }
                pieces += count;
            }
            this.lines += lines.length;
            synchronized (home) {
                Order order = new Order(district.nextOrder++, customer, lines);
                district.orders.put(order.id, order);
                district.undelivered.add(order);
                customer.last = order;
                // Deliveries are a fixed share of the cards, so a queue this long is not met often.
                while (district.undelivered.size() > UNDELIVERED_MAX) {
                    deliver(district);
                }
                print(order);
            }
        }

        void payment() {
            District district = district();
            Warehouse owner = supplier(15);
            District theirs = owner == home ? district : owner.districts[random.nextInt(DISTRICTS)];
            Customer customer = customer(theirs);
            long amount = 100 + random.nextInt(500_000);
            synchronized (owner) {
                customer.balance -= amount;
                customer.paid += amount;
            }
            synchronized (home) {
                home.taken += amount;
                district.taken += amount;
                String text = home.number + " " + customer.name + " " + amount;
                district.history.add(new Payment(customer, amount, text));
                if (district.history.size() > HISTORY_KEPT) {
                    district.history.remove();
                }
            }
        }

        void orderStatus() {
            District district = district();
            Customer customer = customer(district);
            synchronized (home) {
                if (customer.last != null) {
                    print(customer.last);
                }
            }
        }

        void delivery() {
            synchronized (home) {
                for (District district : home.districts) {
                    for (int n = 0; n < 10 && !district.undelivered.isEmpty(); n++) {
                        deliver(district);
                    }
                }
            }
        }

        void deliver(District district) {
            Order order = district.undelivered.remove();
            long amount = order.amount();
            order.delivered = true;
            order.customer.balance += amount;
            order.customer.deliveries++;
            district.delivered += amount;
            while (district.orders.size() > ORDERS_KEPT
                    && district.orders.firstEntry().getValue().delivered) {
                district.orders.pollFirstEntry();
            }
        }

        /** How many of the items in the last 20 orders are short. */
        void stockLevel() {
            District district = district();
            int threshold = 10 + random.nextInt(11);
            int low = 0, seen = 0;
            synchronized (home) {
                for (Order order : district.orders.descendingMap().values()) {
                    for (Line line : order.lines) {
                        low += home.stock.get(line.item.id).quantity < threshold ? 1 : 0;
                    }
                    if (++seen == 20) {
                        break;
                    }
                }
            }
            printed += low;
        }

        void customerReport() {
            District district = district();
            Customer customer = customer(district);
            StringBuilder report = new StringBuilder(1024);
            synchronized (home) {
                report.append(customer.name).append('\n').append(customer.data).append('\n');
                report.append(customer.balance).append(' ').append(customer.paid).append('\n');
                for (Payment payment : district.history) {
                    if (payment.customer == customer) {
                        report.append(payment.text).append('\n');
                    }
                }
            }
            printed += report.toString().hashCode();
        }

        void print(Order order) {
            StringBuilder slip = new StringBuilder(1024);
            slip.append("<order id='").append(order.id).append("'>");
            slip.append(order.customer.name);
            for (Line line : order.lines) {
                slip.append("<line count='").append(line.count).append("'>");
                slip.append(line.item.name).append(' ').append(line.district);
                slip.append(' ').append(line.amount).append("</line>");
            }
            slip.append(order.amount()).append("</order>");
            printed += slip.toString().hashCode();
        }
    }

    static String text(SplittableRandom random, int least, int most) {
        byte[] bytes = new byte[least + random.nextInt(most - least + 1)];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) ('a' + random.nextInt(26));
        }
        return new String(bytes, java.nio.charset.StandardCharsets.ISO_8859_1);
    }

    /** A hash of the characters themselves: String.hashCode remembers its first answer. */
    static int contents(String... texts) {
        int hash = 1;
        for (String text : texts) {
            for (int i = 0; i < text.length(); i++) {
                hash = 31 * hash + text.charAt(i);
            }
        }
        return hash;
    }

    /** What does not hold, at most 20 findings. */
    List<String> broken(Terminal[] terminals) {
        List<String> found = new ArrayList<>();
        long paid = 0, balance = 0, taken = 0, delivered = 0, ordered = 0, lines = 0;
        for (Warehouse warehouse : warehouses) {
            long districts = 0;
            for (int d = 0; d < DISTRICTS; d++) {
                District district = warehouse.districts[d];
                String where = "warehouse " + warehouse.number + ", district " + d + ": ";
                checkDistrict(district, where, found);
                districts += district.taken;
                delivered += district.delivered;
                for (Customer customer : district.customers) {
                    paid += customer.paid;
                    balance += customer.balance;
                }
            }
            taken += warehouse.taken;
            check(districts == warehouse.taken, "districts took " + districts + " of "
                    + warehouse.taken + " in warehouse " + warehouse.number, found);
            for (Stock stock : warehouse.stock.values()) {
                ordered += stock.ordered;
                lines += stock.orders;
                checkStock(stock, warehouse.number, found);
            }
        }
        check(paid == taken, "customers paid " + paid + ", warehouses took " + taken, found);
        check(balance == delivered - paid, "balances sum to " + balance + ", not to "
                + delivered + " delivered less " + paid + " paid", found);
        long pieces = Arrays.stream(terminals).mapToLong(t -> t.pieces).sum();
        check(pieces == ordered, pieces + " pieces ordered, " + ordered + " in stock", found);
        long entered = Arrays.stream(terminals).mapToLong(t -> t.lines).sum();
        check(entered == lines, entered + " lines entered, " + lines + " in stock", found);
        return found;
    }

    static void checkDistrict(District district, String where, List<String> found) {
        int next = district.orders.isEmpty() ? district.nextOrder : district.orders.firstKey();
        for (Map.Entry<Integer, Order> entry : district.orders.entrySet()) {
            Order order = entry.getValue();
            check(entry.getKey() == next && order.id == next,
                    where + "order " + entry.getKey() + " instead of " + next, found);
            check(order.lines.length >= 5 && order.lines.length <= 15 && order.amount() >= 0,
                    where + "order " + order.id + " makes no sense", found);
            next++;
        }
        check(next == district.nextOrder, where + "the next order is " + district.nextOrder
                + " after " + (next - 1), found);
        int waiting = district.nextOrder - district.undelivered.size();
        for (Order order : district.undelivered) {
            check(order.id == waiting++ && !order.delivered,
                    where + "order " + order.id + " waits out of turn", found);
        }
        for (Customer customer : district.customers) {
            check(customer.check == contents(customer.data, customer.name),
                    where + "customer " + customer.id + " has other data", found);
        }
    }

    static void checkStock(Stock stock, int warehouse, List<String> found) {
        String where = "warehouse " + warehouse + ", item " + stock.item.id + ": ";
        long since = Math.floorMod(stock.first - stock.ordered - STOCK_LEAST, STOCK_DELIVERY);
        check(stock.quantity == since + STOCK_LEAST, where + stock.quantity + " in stock", found);
        check(stock.check == contents(stock.district), where + "other district data", found);
    }

    static void check(boolean holds, String otherwise, List<String> found) {
        if (!holds && found.size() < 20) {
            found.add(otherwise);
        }
    }

    /** One number for the state that all terminals together brought about. */
    long state() {
        long state = 0;
        for (Warehouse warehouse : warehouses) {
            state = 31 * state + warehouse.taken;
            for (Stock stock : warehouse.stock.values()) {
                state += (long) stock.item.id * stock.quantity + stock.ordered;
            }
            for (District district : warehouse.districts) {
                state = 31 * state + district.nextOrder + 7 * district.taken + district.delivered;
            }
        }
        return state;
    }

    /** What the command line said. */
    static final class Options {
        int warehouses = 1;
        long seconds = 10;
        long transactions = Long.MAX_VALUE;
        long seed = 1;
        /** Between two rounds of the service; 0 without one. */
        long serviceMillis;
        boolean verify;
        boolean damage;
        Path wait;

        Options(String[] arguments) {
            for (int i = 0; i < arguments.length; i++) {
                switch (arguments[i]) {
                    case "--warehouses" -> warehouses = (int) number(arguments, ++i, 1, 1000);
                    case "--seconds" -> seconds = number(arguments, ++i, 1, 86_400);
                    case "--transactions" ->
                            transactions = number(arguments, ++i, 1, 1_000_000_000_000L);
                    case "--seed" -> seed = number(arguments, ++i, 0, Long.MAX_VALUE);
                    case "--service-ms" -> serviceMillis = number(arguments, ++i, 1, 3_600_000);
                    case "--wait" -> wait = Path.of(text(arguments, ++i));
                    case "--verify" -> verify = true;
                    case "--damage" -> damage = true;
                    default -> throw new IllegalArgumentException("unknown argument '" + arguments[i]
                            + "'; there are --warehouses, --seconds, --transactions, --seed, --service-ms, --wait, --verify");
                }
            }
        }

        static String text(String[] arguments, int i) {
            if (i < arguments.length) {
                return arguments[i];
            }
            throw new IllegalArgumentException(arguments[i - 1] + " takes the name of a file");
        }

        static long number(String[] arguments, int i, long least, long most) {
            try {
                long number = Long.parseLong(arguments[i]);
                if (number >= least && number <= most) {
                    return number;
                }
            } catch (NumberFormatException | ArrayIndexOutOfBoundsException e) {
                // Told below, like a number out of range.
            }
            throw new IllegalArgumentException(
                    arguments[i - 1] + " takes a number from " + least + " to " + most);
        }
    }

    static void say(String format, Object... values) {
        System.out.printf(Locale.ROOT, format + "%n", values);
    }

    /** Live bytes after a collection. */
    static long live() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }

    static void report(Terminal[] terminals, double seconds) {
        long all = 0;
        for (Kind kind : Kind.values()) {
            long done = 0;
            for (Terminal terminal : terminals) {
                done += terminal.done[kind.ordinal()];
            }
            say("%-16s %d", kind.name().toLowerCase(Locale.ROOT).replace('_', ' '), done);
            all += done;
        }
        say("transactions     %d", all);
        say("seconds          %.3f", seconds);
        say("score            %.1f transactions/s", all / seconds);
    }

    public static void main(String[] arguments) throws InterruptedException {
        Options options;
        try {
            options = new Options(arguments);
        } catch (IllegalArgumentException e) {
            System.err.println("jbb: " + e.getMessage());
            System.exit(2);
            return;
        }
        long start = System.nanoTime();
        long empty = live();
        Jbb company = new Jbb(options.warehouses, options.seed);
        say("warehouses       %d of %.1f MB", options.warehouses,
                (live() - empty) / 1e6 / options.warehouses);
        say("set up in        %.3f s", (System.nanoTime() - start) / 1e9);

        System.out.flush();
        while (options.wait != null && !Files.exists(options.wait)) {
            Thread.sleep(10);
        }
        start = System.nanoTime();
        // A number of transactions runs however long it takes.
        boolean counted = options.transactions != Long.MAX_VALUE;
        long until = start + (counted ? Long.MAX_VALUE / 2 : options.seconds * 1_000_000_000);
        Terminal[] terminals = new Terminal[options.warehouses];
        for (int w = 0; w < terminals.length; w++) {
            terminals[w] = new Terminal(company, w, options.seed, until, options.transactions);
        }
        Service service = options.serviceMillis > 0 ? new Service(options.serviceMillis) : null;
        if (service != null) {
            service.start();
        }
        for (Terminal terminal : terminals) {
            terminal.start();
        }
        for (Terminal terminal : terminals) {
            terminal.join();
        }
        report(terminals, (System.nanoTime() - start) / 1e9);
        if (service != null) {
            say("service rounds   %d", service.rounds);
        }
        if (counted) {
            say("state            %016x", company.state());
        }
        if (options.damage) {
            company.warehouses[0].stock.get(ITEMS / 2).quantity++;
        }
        if (options.verify) {
            List<String> broken = company.broken(terminals);
            broken.forEach(finding -> System.err.println("jbb: " + finding));
            say("live at the end  %.1f MB a warehouse", (live() - empty) / 1e6 / terminals.length);
            say("verified         %s", broken.isEmpty() ? "yes" : "no");
            System.exit(broken.isEmpty() ? 0 : 1);
        }
    }
}

//! A real cluster on loopback: three masters, which share the slots, and a replica for each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::{ServerKind, ServerOptions};
use super::{Bigkeys, Client, Servers, Value, wait_for};

const MASTERS: usize = 3;
const SLOTS: u16 = 16384;

/// How long a node may be silent before the others take it for failed. A killed master has an heir after about
/// twice as long; a shorter time, and a busy machine makes nodes fail that have nothing.
const NODE_TIMEOUT_MS: u32 = 2000;

/// A manual failover that has not happened after this long never will: the replica has given up.
const MANUAL_FAILOVER_MAX: Duration = Duration::from_secs(5);

/// Keys that one MIGRATE takes at most.
const MIGRATED_MAX: usize = 100;

/// Commands that are kept, to be sent as one pipeline per node.
const PIPELINE_MAX: usize = 10_000;

/// What a cluster is started with besides the defaults of the bench.
#[derive(Debug, Clone)]
pub(crate) struct ClusterOptions {
    replicas_per_master: usize,
    databases: u32,
    password: Option<&'static str>,
    servers: ServerOptions,
    each: Vec<fn(usize) -> String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            replicas_per_master: 1,
            databases: 1,
            password: None,
            servers: ServerOptions::default(),
            each: Vec::new(),
        }
    }
}

impl ClusterOptions {
    /// Gives each master this many replicas, instead of one.
    pub(crate) fn replicas(mut self, per_master: usize) -> Self {
        self.replicas_per_master = per_master;
        self
    }

    /// Gives it more databases than number 0, as Valkey 9 can.
    pub(crate) fn databases(mut self, count: u32) -> Self {
        self.databases = count;
        self.config(format!("cluster-databases {count}"))
    }

    /// Gives the default user a password.
    pub(crate) fn password(mut self, password: &'static str) -> Self {
        self.password = Some(password);
        self.config(format!("masterauth {password}"))
    }

    /// Lets the nodes tell clients a host name instead of an address, see [`Cluster::host_name`]. No resolver
    /// knows these. The nodes themselves use the addresses.
    pub(crate) fn host_names(self) -> Self {
        self.config("cluster-preferred-endpoint-type hostname")
            .each(|node| format!("cluster-announce-hostname {}", Cluster::host_name(node)))
    }

    /// Adds a line to the configuration of each node (`user ...` for an ACL user).
    pub(crate) fn config(mut self, line: impl Into<String>) -> Self {
        self.servers = self.servers.config(line);
        self
    }

    /// Adds a line to the configuration of each node, which depends on its number.
    pub(crate) fn each(mut self, line: fn(usize) -> String) -> Self {
        self.each.push(line);
        self
    }
}

/// A running cluster. Nodes 0, 1 and 2 begin as masters, and node 3 + n as the replica of n.
///
/// Everything that changes it returns when all nodes that are up agree on the result.
#[derive(Debug)]
pub(crate) struct Cluster {
    // Before `dir`: the processes end before their folder goes.
    pub(crate) nodes: Servers,
    ids: Vec<String>,
    databases: u32,
    dir: TempDir,
}

impl Cluster {
    /// Starts three masters and three replicas without a password.
    #[track_caller]
    pub(crate) fn start(kind: ServerKind) -> Self {
        Self::with(kind, ClusterOptions::default())
    }

    #[track_caller]
    pub(crate) fn with(kind: ServerKind, options: ClusterOptions) -> Self {
        let ClusterOptions { replicas_per_master, databases, password, servers, each } = options;
        let dir = TempDir::with_prefix("bigkeys-cluster-").expect("there is room for a temporary folder");
        let mut nodes = Servers::none(password);
        for node in 0..MASTERS * (1 + replicas_per_master) {
            let server = each.iter().map(|line| line(node)).fold(servers.clone(), ServerOptions::config);
            let server = server
                .cluster_node()
                .config(format!("cluster-node-timeout {NODE_TIMEOUT_MS}"))
                // However long a replica was without its master, it is the best heir that there is.
                .config("cluster-replica-validity-factor 0")
                // A master stays one when its last slot moves away, and replicas stay where a test put them.
                .config("cluster-allow-replica-migration no")
                .config("repl-diskless-sync-delay 0");
            nodes.add(kind, dir.path(), &format!("node-{node}"), server);
        }
        let ids = (0..nodes.len()).map(|node| nodes.redis(node).run("CLUSTER MYID").text()).collect();
        let cluster = Self { nodes, ids, databases, dir };
        cluster.join();
        cluster
    }

    /// Makes a cluster of the nodes.
    #[track_caller]
    fn join(&self) {
        let clients = self.clients();
        for (node, client) in &clients {
            // As `redis-cli --cluster create` does: else they all have epoch 0, and sort that out first.
            client.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", node + 1)).is("OK");
            if *node < MASTERS {
                let share = |n: usize| n * usize::from(SLOTS) / MASTERS;
                let (first, last) = (share(*node), share(node + 1) - 1);
                client.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")).is("OK");
            }
            // Each is told of each: word of mouth takes a second or two.
            for other in 0..*node {
                let (port, bus_port) = (self.nodes.port(other), self.nodes.lock(other).bus_port());
                client.run(&format!("CLUSTER MEET 127.0.0.1 {port} {bus_port}")).is("OK");
            }
        }
        for (node, client) in &clients[MASTERS..] {
            let command = format!("CLUSTER REPLICATE {}", self.ids[node % MASTERS]);
            wait_for("a replica to know its master", || {
                client.try_call(&command.split(' ').collect::<Vec<_>>()).error_text().map_or(Ok(()), Err)
            });
        }
        self.settle();
    }

    /// Returns the name that node n announces with [`ClusterOptions::host_names`].
    pub(crate) fn host_name(node: usize) -> String {
        format!("node-{node}.cluster.invalid")
    }

    /// Returns the id of a node in the cluster.
    pub(crate) fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// Opens a connection to a node.
    #[track_caller]
    pub(crate) fn redis(&self, node: usize) -> Client {
        self.nodes.redis(node)
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.nodes.address(node)
    }

    /// Prepares a `bigkeys` command, which is told of the first node that is up. It runs in the folder of the
    /// cluster.
    #[track_caller]
    pub(crate) fn bigkeys<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        self.bigkeys_bare(args).arg("--port").arg(self.first_port().to_string())
    }

    /// Prepares a `bigkeys` command that is not told of any node.
    pub(crate) fn bigkeys_bare<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::new(self.dir(), args)
    }

    /// Prepares a scan as fast as it goes, with the result as JSON, like [`super::Lab::scan`].
    #[track_caller]
    pub(crate) fn scan<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::scan(self.dir(), self.first_port(), args)
    }

    /// Returns the folder in which `bigkeys` runs.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the port of the first node that is up.
    #[track_caller]
    pub(crate) fn first_port(&self) -> u16 {
        self.nodes.port(*self.nodes.up().first().expect("one node is up"))
    }

    // ---- who has what

    /// Returns the masters that are up.
    #[track_caller]
    pub(crate) fn masters(&self) -> Vec<usize> {
        self.members(|entry| entry.flag("master"))
    }

    /// Returns the replicas of a master, those that are up.
    #[track_caller]
    pub(crate) fn replicas_of(&self, master: usize) -> Vec<usize> {
        self.members(|entry| entry.master == self.ids[master])
    }

    #[track_caller]
    fn members(&self, is_member: impl Fn(&Entry) -> bool) -> Vec<usize> {
        let view = self.view();
        self.nodes
            .up()
            .into_iter()
            .filter(|&node| view.get(&self.ids[node]).is_some_and(&is_member))
            .collect()
    }

    /// Returns the node that owns a slot, be it up or not.
    #[track_caller]
    pub(crate) fn owner_of(&self, slot: u16) -> usize {
        let view = self.view();
        let owner = view.iter().find(|(_, entry)| entry.has(slot));
        let id = owner.map_or_else(|| panic!("nobody has slot {slot}: {view:?}"), |(id, _)| id);
        self.ids.iter().position(|own| own == id).expect("the nodes of the cluster are ours")
    }

    /// Returns the slots that a node owns, first and last of each run.
    #[track_caller]
    pub(crate) fn slots_of(&self, node: usize) -> Vec<(u16, u16)> {
        self.view().remove(&self.ids[node]).map_or_else(Vec::new, |entry| entry.slots)
    }

    /// Opens a connection to the master of a key.
    #[track_caller]
    pub(crate) fn master_of(&self, key: impl AsRef<[u8]>) -> Client {
        self.redis(self.owner_of(slot_of(key.as_ref())))
    }

    /// Runs a command given as words, the second of which is its key, on the master of the key.
    #[track_caller]
    pub(crate) fn run(&self, command: &str) -> Value {
        let key = command.split_whitespace().nth(1).expect("the second word is a key");
        self.master_of(key).run(command)
    }

    /// Runs many commands, the second word of which is the key, in a pipeline to each master.
    ///
    /// # Panics
    /// When one of them is refused.
    #[track_caller]
    pub(crate) fn pipeline<C: AsRef<[A]>, A: AsRef<[u8]>>(&self, commands: impl IntoIterator<Item = C>) {
        self.pipeline_in(0, commands);
    }

    /// Like [`Cluster::pipeline`], in a database.
    #[track_caller]
    pub(crate) fn pipeline_in<C: AsRef<[A]>, A: AsRef<[u8]>>(
        &self,
        db: u32,
        commands: impl IntoIterator<Item = C>,
    ) {
        let view = self.view();
        let masters: Vec<_> = view
            .iter()
            .filter(|(_, entry)| !entry.slots.is_empty())
            .map(|(id, entry)| {
                let node = self.ids.iter().position(|own| own == id).expect("the nodes are ours");
                let client = self.redis(node);
                if db > 0 {
                    client.run(&format!("SELECT {db}")).is("OK");
                }
                (entry, client)
            })
            .collect();
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let mut lots: Vec<Vec<C>> = masters.iter().map(|_| Vec::new()).collect();
            for command in commands.by_ref().take(PIPELINE_MAX) {
                let slot = slot_of(command.as_ref()[1].as_ref());
                let owner = masters.iter().position(|(entry, _)| entry.has(slot));
                lots[owner.unwrap_or_else(|| panic!("nobody has slot {slot}"))].push(command);
            }
            for ((_, client), lot) in masters.iter().zip(lots) {
                client.pipeline(lot);
            }
        }
    }

    /// Waits until the replicas have all that their masters have by now.
    #[track_caller]
    pub(crate) fn catch_up(&self) {
        for master in self.masters() {
            self.nodes.catch_up(master, &self.replicas_of(master));
        }
    }

    // ---- what can happen to it

    /// Moves a slot with all its keys to a master, as `redis-cli --cluster reshard` does. The steps can be had
    /// one by one: [`Cluster::begin_move`], [`Cluster::move_keys`], [`Cluster::end_move`].
    #[track_caller]
    pub(crate) fn move_slot(&self, slot: u16, to: usize) {
        self.begin_move(slot, to);
        self.move_keys(slot, to, usize::MAX);
        self.end_move(slot, to);
    }

    /// Begins to move a slot: its master answers ASK for keys that it has not, or no more.
    #[track_caller]
    pub(crate) fn begin_move(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        self.redis(to).run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.ids[from])).is("OK");
        self.redis(from).run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.ids[to])).is("OK");
    }

    /// Moves keys of a slot that is being moved, at most so many. Returns how many were moved.
    #[track_caller]
    pub(crate) fn move_keys(&self, slot: u16, to: usize, max: usize) -> usize {
        let source = self.redis(self.owner_of(slot));
        let port = self.nodes.port(to).to_string();
        let mut moved = 0;
        for db in 0..self.databases {
            if db > 0 {
                source.run(&format!("SELECT {db}")).is("OK");
            }
            loop {
                let count = MIGRATED_MAX.min(max - moved);
                let keys = source.run(&format!("CLUSTER GETKEYSINSLOT {slot} {count}"));
                if count == 0 || keys.items().is_empty() {
                    break;
                }
                let db = db.to_string();
                let mut command: Vec<&[u8]> =
                    vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", db.as_bytes(), b"60000"];
                if let Some(password) = self.nodes.password() {
                    command.extend([b"AUTH", password.as_bytes()]);
                }
                command.push(b"KEYS");
                command.extend(keys.items().iter().map(Value::bytes));
                source.call(&command).is("OK");
                moved += keys.items().len();
            }
        }
        moved
    }

    /// Ends the move of a slot, which must be empty: all get to know its new master.
    #[track_caller]
    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        // The new owner first: were we to stop after the old one, the slot would have none.
        let others = self.masters().into_iter().filter(|&node| node != to);
        for node in std::iter::once(to).chain(others) {
            self.redis(node).run(&format!("CLUSTER SETSLOT {slot} NODE {}", self.ids[to])).is("OK");
        }
        self.settle();
    }

    /// Moves slots with all their keys to a master in one go, as Valkey can since 9.0: nobody ever answers ASK.
    #[track_caller]
    pub(crate) fn migrate_slots(&self, first: u16, last: u16, to: usize) {
        let source = self.redis(self.owner_of(first));
        source.run(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {}", self.ids[to])).is("OK");
        wait_for("slots to be migrated", || match self.owner_of(last) {
            owner if owner == to => Ok(()),
            _ => Err(format!("{:?}", source.run("CLUSTER GETSLOTMIGRATIONS"))),
        });
        self.settle();
    }

    /// Makes a replica the master of its shard, without a loss.
    #[track_caller]
    pub(crate) fn failover(&self, replica: usize) {
        let client = self.redis(replica);
        let mut asked_at = None::<Instant>;
        wait_for("a failover", || {
            if client.run("ROLE").items()[0].text() == "master" {
                return Ok(());
            }
            if asked_at.is_none_or(|at| at.elapsed() > MANUAL_FAILOVER_MAX) {
                if let Some(why) = client.try_call(&["CLUSTER", "FAILOVER"]).error_text() {
                    return Err(why);
                }
                asked_at = Some(Instant::now());
            }
            Err(format!("node {replica} is a replica"))
        });
        self.settle();
    }

    /// Waits until a replica has become the master of its shard, whose master was killed or paused.
    #[track_caller]
    pub(crate) fn wait_for_promotion(&self, replica: usize) {
        let client = self.redis(replica);
        wait_for("a promotion", || match client.run("ROLE").items()[0].text().as_str() {
            "master" => Ok(()),
            role => Err(format!("node {replica} is a {role}\n{}", client.run("CLUSTER NODES").text())),
        });
        self.settle();
    }

    /// Waits until all nodes that are up hold one that is not for failed.
    #[track_caller]
    pub(crate) fn wait_for_failure(&self, node: usize) {
        let clients = self.clients();
        wait_for("a node to be held for failed", || {
            clients.iter().try_for_each(|(witness, client)| match view(client).get(&self.ids[node]) {
                Some(entry) if entry.flag("fail") => Ok(()),
                entry => Err(format!("node {witness} says of node {node}: {entry:?}")),
            })
        });
    }

    /// Waits until all nodes that are up agree who is who and has what, all slots are owned by some of them,
    /// and their replicas are in step.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let clients = self.clients();
        wait_for("the cluster to settle", || self.disagreement(&clients).map_or(Ok(()), Err));
    }

    /// Says what is not as [`Cluster::settle`] wants it.
    #[track_caller]
    fn disagreement(&self, clients: &[(usize, Client)]) -> Option<String> {
        let up: Vec<&str> = clients.iter().map(|&(node, _)| self.id(node)).collect();
        let mut agreed: Option<View> = None;
        for (witness, client) in clients {
            let mut view = view(client);
            view.retain(|id, _| up.contains(&id.as_str()));
            let says = |what: &str, view: &View| {
                let mut text = format!("node {witness}: {what}");
                for (id, entry) in view {
                    let _ = write!(text, "\n{id} {entry:?}");
                }
                Some(text)
            };
            if view.len() != up.len() {
                return says("it does not know all", &view);
            }
            if !view.values().all(Entry::is_well) {
                return says("some are not well", &view);
            }
            if client.run("CLUSTER INFO").text().lines().next() != Some("cluster_state:ok") {
                return says("its state is not ok", &view);
            }
            let own_master = &view[self.id(*witness)].master;
            if up.contains(&own_master.as_str()) && client.info("master_link_status") != "up" {
                return says("it has no link to its master", &view);
            }
            for entry in view.values_mut() {
                // Each calls itself `myself`, and says of its own slots which are on their way.
                entry.flags.retain(|flag| flag != "myself");
            }
            match &agreed {
                Some(agreed) if *agreed != view => return says("it does not agree with the first", &view),
                Some(_) => {}
                None => {
                    let owned = view.values().flat_map(|entry| &entry.slots);
                    if owned.map(|(first, last)| last - first + 1).sum::<u16>() != SLOTS {
                        return says("not all slots are owned", &view);
                    }
                    agreed = Some(view);
                }
            }
        }
        None
    }

    #[track_caller]
    fn clients(&self) -> Vec<(usize, Client)> {
        self.nodes.up().into_iter().map(|node| (node, self.redis(node))).collect()
    }

    /// Returns the view of a master that is up: masters are the first to know.
    #[track_caller]
    fn view(&self) -> View {
        let mut views = self.nodes.up().into_iter().map(|node| (node, view(&self.redis(node))));
        let of_a_master =
            views.find(|(node, view)| view.get(&self.ids[*node]).is_some_and(|own| own.flag("master")));
        of_a_master.expect("a master is up").1
    }
}

/// What a node says of the nodes, by their ids.
type View = BTreeMap<String, Entry>;

/// A line of CLUSTER NODES.
#[derive(Debug, PartialEq)]
struct Entry {
    flags: Vec<String>,
    /// The id of the master; `-` for a master.
    master: String,
    is_linked: bool,
    slots: Vec<(u16, u16)>,
}

impl Entry {
    fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag == name)
    }

    fn is_well(&self) -> bool {
        self.is_linked && !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| self.flag(flag))
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

#[track_caller]
fn view(client: &Client) -> View {
    let nodes = client.run("CLUSTER NODES").text();
    nodes
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            assert!(words.len() >= 8, "not a line of CLUSTER NODES: {line}");
            // A slot on its way is in brackets.
            let slots = words[8..].iter().filter(|slots| !slots.starts_with('[')).map(|slots| {
                let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
                (first.parse().expect("a slot is a number"), last.parse().expect("a slot is a number"))
            });
            let entry = Entry {
                flags: words[2].split(',').map(str::to_owned).collect(),
                master: words[3].to_owned(),
                is_linked: words[7] == "connected",
                slots: slots.collect(),
            };
            (words[0].to_owned(), entry)
        })
        .collect()
}

/// Returns the slot of a key: CRC-16/XMODEM of its tag, or of all of it when it has none.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&byte| byte == b'}').filter(|&length| length > 0).map(|length| &rest[..length])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

/// Returns a tag whose keys (`{tag}:...`) are in a slot.
pub(crate) fn tag_in(slot: u16) -> String {
    let mut tags = (0..u32::MAX).map(|n| format!("t{n}"));
    tags.find(|tag| slot_of(tag.as_bytes()) == slot).expect("each slot has its share of them")
}

//! A real Sentinel group on loopback: a primary and two replicas, watched by three Sentinels.

use std::path::Path;

use super::server::{ServerKind, ServerOptions};
use super::{Bigkeys, Client, Replicated, Servers, wait_for};

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// How long a primary may be silent before a Sentinel takes it for down. A shorter time, and a busy machine makes
/// primaries fail that have nothing.
const DOWN_AFTER_MS: u32 = 1000;

/// A failover that fails is tried again after twice this long.
const FAILOVER_TIMEOUT_MS: u32 = 3000;

/// Sentinels greet each other every 2 s and look at replicas every 10 s, and some of what they do waits for a
/// few rounds of that. A process that did not run for 2 s mistrusts its clock, and does nothing for 30 s.
const HASTE: &str = "SENTINEL DEBUG publish-period 200 info-period 500 ping-period 200 ask-period 200 \
                     tilt-period 1000";

/// What a group is started with besides the defaults of the bench.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentinelOptions {
    password: Option<&'static str>,
    sentinel_password: Option<&'static str>,
    servers: ServerOptions,
    sentinels: ServerOptions,
}

impl SentinelOptions {
    /// Gives the default user of the servers a password.
    pub(crate) fn password(mut self, password: &'static str) -> Self {
        self.password = Some(password);
        self
    }

    /// Gives the default user of the Sentinels a password.
    pub(crate) fn sentinel_password(mut self, password: &'static str) -> Self {
        self.sentinel_password = Some(password);
        self.sentinels = self.sentinels.config(format!("sentinel sentinel-pass {password}"));
        self
    }

    /// Adds a line to the configuration of each server.
    pub(crate) fn config(mut self, line: impl Into<String>) -> Self {
        self.servers = self.servers.config(line);
        self
    }

    /// Adds a line to the configuration of each Sentinel.
    pub(crate) fn sentinel_config(mut self, line: impl Into<String>) -> Self {
        self.sentinels = self.sentinels.config(line);
        self
    }
}

/// A running group. Server 0 begins as the primary, 1 and 2 as its replicas.
#[derive(Debug)]
pub(crate) struct SentinelGroup {
    // Before the servers: nobody is left to call them down while they end.
    pub(crate) sentinels: Servers,
    replicated: Replicated,
}

impl SentinelGroup {
    /// The name of the group.
    pub(crate) const NAME: &str = "orders";

    /// Starts a group without passwords.
    #[track_caller]
    pub(crate) fn start(kind: ServerKind) -> Self {
        Self::with(kind, SentinelOptions::default())
    }

    #[track_caller]
    pub(crate) fn with(kind: ServerKind, options: SentinelOptions) -> Self {
        let SentinelOptions { password, sentinel_password, servers, sentinels: watching } = options;
        let replicated = Replicated::with(kind, REPLICAS, password, |_| servers.clone());
        let mut sentinels = Servers::none(sentinel_password);
        for n in 0..SENTINELS {
            let name = Self::NAME;
            let mut sentinel = watching
                .clone()
                .sentinel()
                .config(format!("sentinel monitor {name} 127.0.0.1 {} 2", replicated.servers.port(0)))
                .config(format!("sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}"))
                .config(format!("sentinel failover-timeout {name} {FAILOVER_TIMEOUT_MS}"))
                .config(format!("sentinel parallel-syncs {name} {REPLICAS}"));
            if let Some(password) = password {
                sentinel = sentinel.config(format!("sentinel auth-pass {name} {password}"));
            }
            sentinels.add(kind, replicated.dir(), &format!("sentinel-{n}"), sentinel);
            sentinels.redis(n).run(HASTE).is("OK");
        }
        let group = Self { sentinels, replicated };
        group.settle();
        group
    }

    /// Returns the servers that are watched.
    pub(crate) fn servers(&self) -> &Servers {
        &self.replicated.servers
    }

    /// Opens a connection to a server.
    #[track_caller]
    pub(crate) fn redis(&self, server: usize) -> Client {
        self.servers().redis(server)
    }

    /// Opens a connection to a Sentinel.
    #[track_caller]
    pub(crate) fn sentinel(&self, n: usize) -> Client {
        self.sentinels.redis(n)
    }

    /// Prepares a `bigkeys` command that is told to ask the first Sentinel that is up. It runs in the folder of
    /// the group.
    #[track_caller]
    pub(crate) fn bigkeys<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        let port = self.sentinels.port(*self.sentinels.up().first().expect("one Sentinel is up"));
        self.bigkeys_bare(args).args(["--sentinel", Self::NAME, "--port"]).arg(port.to_string())
    }

    /// Prepares a `bigkeys` command that is not told of any server or Sentinel.
    pub(crate) fn bigkeys_bare<const N: usize>(&self, args: [&str; N]) -> Bigkeys {
        Bigkeys::new(self.dir(), args)
    }

    /// Returns the folder in which `bigkeys` runs.
    pub(crate) fn dir(&self) -> &Path {
        self.replicated.dir()
    }

    /// Returns the server that the first Sentinel that is up takes for the primary.
    #[track_caller]
    pub(crate) fn primary(&self) -> usize {
        self.named_by(&self.sentinel(*self.sentinels.up().first().expect("one Sentinel is up")))
    }

    #[track_caller]
    fn named_by(&self, sentinel: &Client) -> usize {
        let address = sentinel.run(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Self::NAME));
        let port = address.items()[1].text().parse().expect("a port is a number");
        self.servers().at_port(port).expect("the servers of the group are ours")
    }

    /// Lets the Sentinels make a replica the primary, and waits until all is well again. Returns the new primary.
    #[track_caller]
    pub(crate) fn failover(&self) -> usize {
        let before = self.primary();
        let sentinel = self.sentinel(self.sentinels.up()[0]);
        wait_for("a failover to begin", || {
            sentinel.try_call(&["SENTINEL", "FAILOVER", Self::NAME]).error_text().map_or(Ok(()), Err)
        });
        self.wait_for_promotion(before)
    }

    /// Kills the primary, and waits until a replica is the primary and all is well again. Returns the new one.
    #[track_caller]
    pub(crate) fn kill_primary(&self) -> usize {
        let before = self.primary();
        self.servers().kill(before);
        self.wait_for_promotion(before)
    }

    /// Waits until another is the primary than before, and all is well again. Returns the new one.
    #[track_caller]
    pub(crate) fn wait_for_promotion(&self, before: usize) -> usize {
        wait_for("a promotion", || match self.agreement()? {
            primary if primary == before => Err(format!("server {before} is the primary still")),
            primary => Ok(primary),
        })
    }

    /// Waits until all Sentinels that are up know all servers and each other, agree on the primary, and all servers
    /// that are up replicate it. Returns the primary.
    #[track_caller]
    pub(crate) fn settle(&self) -> usize {
        wait_for("the group to settle", || self.agreement())
    }

    /// Returns the primary.
    ///
    /// # Errors
    /// With what is not as [`SentinelGroup::settle`] wants it.
    #[track_caller]
    fn agreement(&self) -> Result<usize, String> {
        let up = self.servers().up();
        let primary = self.primary();
        for n in self.sentinels.up() {
            let sentinel = self.sentinel(n);
            let named = self.named_by(&sentinel);
            let master = sentinel.run(&format!("SENTINEL MASTER {}", Self::NAME));
            let replicas = sentinel.run(&format!("SENTINEL REPLICAS {}", Self::NAME));
            let is_well = |server: usize| {
                replicas.items().iter().any(|replica| {
                    let field = |name| replica.field(name).text();
                    field("port") == self.servers().port(server).to_string()
                        && field("flags") == "slave"
                        && field("master-port") == self.servers().port(primary).to_string()
                        && field("master-link-status") == "ok"
                })
            };
            if named != primary
                || master.field("flags").text() != "master"
                || master.field("num-slaves").text() != REPLICAS.to_string()
                || master.field("num-other-sentinels").text() != (SENTINELS - 1).to_string()
                || !up.iter().all(|&server| server == primary || is_well(server))
            {
                return Err(format!("Sentinel {n} says: {master:?}\n{replicas:?}"));
            }
        }
        for server in up {
            let redis = self.redis(server);
            let is_well = if server == primary {
                redis.info("role") == "master"
            } else {
                redis.info("role") == "slave"
                    && redis.info("master_port") == self.servers().port(primary).to_string()
                    && redis.info("master_link_status") == "up"
            };
            if !is_well {
                return Err(format!("server {server} says: {:?}", redis.run("ROLE")));
            }
        }
        Ok(primary)
    }
}

//! The test bench itself: what the other tests rely on.

use std::time::Duration;

use crate::support::{Action, Client, Lab, Proxy, Value, on_each_server, on_servers};

on_each_server! {
    fn a_server_starts_answers_and_is_the_one_that_was_asked_for(kind) {
        let lab = Lab::start(kind);
        let redis = lab.redis();
        redis.run("PING").is("PONG");
        let field = if kind.is_valkey() { "valkey_version" } else { "redis_version" };
        assert_eq!(redis.info(field), kind.version());
        // The oracle rests on DEBUG.
        redis.run("SET k v");
        redis.run("DEBUG OBJECT k");
    }

    fn a_restart_keeps_the_port_and_loses_the_data(kind) {
        let mut lab = Lab::start(kind);
        lab.redis().run("SET k v");
        let before = (lab.address(), lab.redis().info("run_id"));
        lab.server_mut().restart();
        assert_eq!(lab.redis().run("EXISTS k").int(), 0);
        assert_eq!(lab.address(), before.0);
        assert_ne!(lab.redis().info("run_id"), before.1);
    }
}

on_servers! {
    [redis_7_0 Redis70, bundled Bundled]
    fn the_proxy_forwards_edits_answers_and_drops(kind) {
        let lab = Lab::start(kind);
        let address = lab.address();
        let proxy = Proxy::start(address, move |request| {
            if request.is("GET") && request.names("hooked") {
                Client::connect(address).run("SET hooked early");
                Action::Forward
            } else if request.is("GET") && request.names("edited") {
                Action::Edit(Box::new(|_| Value::bulk("other")))
            } else if request.is("GET") && request.names("refused") {
                Action::error("NOPERM no")
            } else if request.is("GET") && request.names("late") {
                Action::Delay(Duration::from_millis(20))
            } else if request.is("quit") {
                Action::Drop
            } else {
                Action::Forward
            }
        });
        let client = Client::connect(([127, 0, 0, 1], proxy.port()).into());
        client.run("SET plain value").is("OK");
        for key in ["plain", "late", "refused", "edited", "hooked"] {
            client.send(&["get", key]);
        }
        client.receive().is("value");
        assert!(client.receive().is_null());
        assert_eq!(client.receive().error_text().as_deref(), Some("NOPERM no"));
        client.receive().is("other");
        client.receive().is("early");
        assert_eq!(proxy.requests("GET").len(), 5);
        client.send(&["QUIT"]);
        let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.receive()));
        assert!(closed.is_err(), "the proxy should have closed the connection");
        assert_eq!(proxy.connections(), 1);
    }
}

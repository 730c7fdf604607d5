//! What to try when a scan cannot begin, in the words of our flags.

use crate::engine::live::{Address, ConnectErrorKind};
use crate::engine::scan::ScanError;

/// Returns what to try.
pub(super) fn hint(error: &ScanError) -> &'static str {
    match error {
        ScanError::Connect(error) if matches!(error.address, Address::Unix(_)) => match &error.kind {
            ConnectErrorKind::Refused | ConnectErrorKind::NoSocket | ConnectErrorKind::Io(_) => {
                "check that the server runs, and `unixsocket` and `unixsocketperm` in its configuration"
            }
            kind => connect_hint(kind),
        },
        ScanError::Connect(error) => connect_hint(&error.kind),
        ScanError::Lost { .. } => "see the server's log; if it is only slow, raise --timeout",
        ScanError::ScanRefused { message, .. } if message.starts_with("NOPERM") => {
            "`bigkeys scan --print-acl` prints the smallest rule that a scan needs"
        }
        ScanError::ScanRefused { .. } => {
            "bigkeys finds keys by SCAN; where a proxy does not pass it on, scan the servers behind it"
        }
        ScanError::NoCluster { .. } => "leave --cluster out, or name a node of the cluster",
        ScanError::Sentinel { .. } => {
            "the name is that of `sentinel monitor NAME`; the address is a Sentinel's, on port 26379 as a rule"
        }
        ScanError::NoCheckpoints { .. } => {
            "leave --checkpoint out, or scan one node after the other with --one-node"
        }
        ScanError::BadCheckpoint => "begin anew, with --checkpoint and another file",
        ScanError::Database { .. } => {
            "`INFO keyspace` lists the databases that hold keys; a cluster has only 0"
        }
    }
}

fn connect_hint(kind: &ConnectErrorKind) -> &'static str {
    match kind {
        ConnectErrorKind::Resolve(_) => {
            "check the host name; a name that a cluster tells can be mapped with --map-address"
        }
        ConnectErrorKind::Refused => "check that the server runs, and the host and port (-p)",
        ConnectErrorKind::NoSocket => "check the path of the socket",
        ConnectErrorKind::Io(_) => "check the address and the network between here and there",
        ConnectErrorKind::TimedOut("TLS") => {
            "is it a TLS port? without --tls (or with redis://) it may answer; else raise --connect-timeout"
        }
        ConnectErrorKind::TimedOut(_) => {
            "check firewalls and security groups; raise --connect-timeout or --timeout if it is only slow"
        }
        ConnectErrorKind::TlsOnPlainPort => "use the TLS port, or leave out --tls (redis:// for rediss://)",
        ConnectErrorKind::PlainOnTlsPort => "use --tls or a rediss:// URL",
        ConnectErrorKind::UnknownIssuer => "name the CA that signed it with --cacert",
        ConnectErrorKind::CertificateExpired => {
            "renew the server's certificate, and check this machine's clock"
        }
        ConnectErrorKind::CertificateNameMismatch => {
            "connect by the name in the certificate, or name it with --sni"
        }
        ConnectErrorKind::TlsAlert(_) => {
            "the server may want a client certificate (--cert and --key), or another TLS version"
        }
        ConnectErrorKind::Tls(_) => "check --cacert, --cert and --key",
        ConnectErrorKind::TlsFile { .. } => "the file must be readable and in PEM form",
        ConnectErrorKind::NotRedis(_) => "check the host and port",
        ConnectErrorKind::Closed => "check that it is a Redis port; a TLS port needs --tls",
        ConnectErrorKind::ClosedAtCommand(_) => {
            "proxies such as twemproxy do that at a command that they do not pass on: connect to the servers behind it"
        }
        ConnectErrorKind::NoLogin => "leave the password out: unset REDISCLI_AUTH, or take it out of the URL",
        ConnectErrorKind::WrongPassword => "check --user, and REDISCLI_AUTH, --password-file or --askpass",
        ConnectErrorKind::PasswordNeeded => "give it by REDISCLI_AUTH, --password-file or --askpass",
        ConnectErrorKind::NoPasswordSet => "leave the password out, or name the ACL user with --user",
        ConnectErrorKind::NoPermission(_) => {
            "`bigkeys scan --print-acl` prints the smallest rule that a scan needs"
        }
        ConnectErrorKind::NotReady(_) => "try again when it answers PING, or raise --timeout to wait for it",
        ConnectErrorKind::Server(_) => "look the error up in the server's documentation",
    }
}

//! TLS by rustls: whom to trust, who we are, and what exactly went wrong.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

use super::connect::ConnectErrorKind;
use super::endpoint::TlsOptions;

/// Makes a connector from files and the system's store.
pub(super) fn connector(options: &TlsOptions) -> Result<TlsConnector, ConnectErrorKind> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectErrorKind::Tls(error.to_string()))?;
    let builder = if options.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(VerifyNothing(provider)))
    } else {
        builder.with_root_certificates(roots(options)?)
    };
    let config = match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| bad_pem(key, &error))?;
            builder.with_client_auth_cert(chain, private_key).map_err(|error| bad_file(key, &error))?
        }
        (None, None) => builder.with_no_client_auth(),
        (Some(path), None) | (None, Some(path)) => {
            let why = "a client certificate needs both its certificate and its private key";
            return Err(ConnectErrorKind::TlsFile { path: path.clone(), why: why.to_owned() });
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns the name to ask for and to verify.
pub(super) fn server_name(host: &str, options: &TlsOptions) -> Result<ServerName<'static>, ConnectErrorKind> {
    let name = options.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned())
        .map_err(|_| ConnectErrorKind::Tls(format!("`{name}` is no host name that a certificate could hold")))
}

/// Says what a failed handshake means.
pub(super) fn handshake_error(error: &std::io::Error) -> ConnectErrorKind {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) else {
        return if error.kind() == std::io::ErrorKind::UnexpectedEof {
            ConnectErrorKind::TlsOnPlainPort
        } else {
            ConnectErrorKind::Io(error.to_string())
        };
    };
    match tls {
        TlsError::InvalidMessage(_) => ConnectErrorKind::TlsOnPlainPort,
        TlsError::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => ConnectErrorKind::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                ConnectErrorKind::CertificateExpired
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                ConnectErrorKind::CertificateNameMismatch
            }
            other => ConnectErrorKind::Tls(other.to_string()),
        },
        TlsError::AlertReceived(alert) => ConnectErrorKind::TlsAlert(format!("{alert:?}")),
        other => ConnectErrorKind::Tls(other.to_string()),
    }
}

/// Returns the alert in an error that came after the handshake: a server that wants a client
/// certificate says so only when the first byte is read (TLS 1.3).
pub(super) fn late_alert(message: &str) -> Option<ConnectErrorKind> {
    message.contains("fatal alert").then(|| ConnectErrorKind::TlsAlert(message.to_owned()))
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, ConnectErrorKind> {
    let mut store = RootCertStore::empty();
    if let Some(path) = &options.ca_file {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|error| bad_file(path, &error))?;
        }
    } else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if store.is_empty() {
        return Err(ConnectErrorKind::Tls("the system has no CA certificates to trust".to_owned()));
    }
    Ok(store)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectErrorKind> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| bad_pem(path, &error))?;
    if chain.is_empty() {
        return Err(bad_file(path, &"it holds no certificate in PEM form"));
    }
    Ok(chain)
}

fn bad_file(path: &Path, why: &dyn std::fmt::Display) -> ConnectErrorKind {
    ConnectErrorKind::TlsFile { path: path.to_owned(), why: why.to_string() }
}

/// Says what is wrong with a PEM file; an error of the system goes without a second "error" around it.
fn bad_pem(path: &Path, error: &pem::Error) -> ConnectErrorKind {
    match error {
        pem::Error::Io(error) => bad_file(path, error),
        error => bad_file(path, error),
    }
}

/// `--insecure`: any certificate will do. Signatures are still checked, so that the peer at least
/// holds the key of the certificate it shows.
#[derive(Debug)]
struct VerifyNothing(Arc<CryptoProvider>);

impl ServerCertVerifier for VerifyNothing {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

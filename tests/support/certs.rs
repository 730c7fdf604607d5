//! Certificates for the TLS tests, made when they run: a CA of our own, and every way to be wrong.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// PEM files in one folder. Each name stands for `NAME.crt` and `NAME.key`.
#[derive(Debug)]
pub(crate) struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    /// Writes `ca` (and `other-ca`, which signed nothing), `server`, `client`, `expired` (a server
    /// certificate of the past) and `elsewhere` (a server certificate for another host).
    pub(crate) fn create(dir: &Path) -> Self {
        let certificates = Self { dir: dir.to_owned() };
        let ca = certificates.authority("ca", "bigkeys test CA");
        certificates.authority("other-ca", "another CA");
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        certificates.signed("server", &ca, &["localhost", "127.0.0.1"], server.clone(), (2020, 2060));
        certificates.signed("expired", &ca, &["localhost", "127.0.0.1"], server.clone(), (2020, 2021));
        certificates.signed("elsewhere", &ca, &["redis.example.com"], server, (2020, 2060));
        certificates.signed("client", &ca, &["client"], ExtendedKeyUsagePurpose::ClientAuth, (2020, 2060));
        certificates
    }

    /// Returns the path of a certificate.
    pub(crate) fn cert(&self, name: &str) -> String {
        self.path(name, "crt")
    }

    /// Returns the path of a private key.
    pub(crate) fn key(&self, name: &str) -> String {
        self.path(name, "key")
    }

    fn path(&self, name: &str, suffix: &str) -> String {
        self.dir.join(format!("{name}.{suffix}")).to_str().expect("temporary folders are UTF-8").to_owned()
    }

    fn authority(&self, name: &str, common_name: &str) -> Issuer<'static, KeyPair> {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid names");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2060, 1, 1);
        let certificate = params.self_signed(&key).expect("a CA can sign itself");
        self.write(name, &certificate.pem(), &key);
        Issuer::new(params, key)
    }

    fn signed(
        &self,
        name: &str,
        ca: &Issuer<'_, KeyPair>,
        hosts: &[&str],
        usage: ExtendedKeyUsagePurpose,
        years: (i32, i32),
    ) {
        let key = KeyPair::generate().expect("a key can be made");
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("the names are valid");
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let certificate = params.signed_by(&key, ca).expect("the CA can sign");
        self.write(name, &certificate.pem(), &key);
    }

    fn write(&self, name: &str, certificate: &str, key: &KeyPair) {
        fs::write(self.cert(name), certificate).expect("the lab's folder is writable");
        fs::write(self.key(name), key.serialize_pem()).expect("the lab's folder is writable");
    }
}

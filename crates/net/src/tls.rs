//! TLS as a client: without looking at the certificate, or checked against a file of authorities.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::fault::{Fault, Outcome};

/// How the server's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Not at all.
    None,
    /// Signed by one of the authorities in this file.
    Authority(PathBuf),
    /// Also issued for the name of the host.
    Full(PathBuf),
}

/// A connection that has not begun. `host`: as the user named it.
pub fn client(host: &str, check: &Check) -> Outcome<ClientConnection> {
    let fault = |text: String| Fault::new("tls", "tls", text);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match check {
        Check::None => Arc::new(Lenient { provider: provider.clone(), strict: None }),
        Check::Authority(file) | Check::Full(file) => {
            let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities(file)?), provider.clone());
            let strict = strict.build().map_err(|e| fault(format!("{}: {e}", file.display())))?;
            match check {
                Check::Full(_) => strict,
                _ => Arc::new(Lenient { provider: provider.clone(), strict: Some(strict) }),
            }
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| fault(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|_| fault(format!("{host} is no name that TLS knows")))?;
    ClientConnection::new(Arc::new(config), name).map_err(|e| fault(e.to_string()))
}

fn authorities(file: &PathBuf) -> Outcome<RootCertStore> {
    let fault = |text: String| Fault::new("tls", "tls", format!("{}: {text}", file.display()));
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| fault(e.to_string()))? {
        let certificate = certificate.map_err(|e| fault(e.to_string()))?;
        store.add(certificate).map_err(|e| fault(e.to_string()))?;
    }
    if store.is_empty() {
        return Err(fault("there is no certificate in it".to_owned()));
    }
    Ok(store)
}

/// Takes every certificate, or every one of the authorities whatever name it was issued for. Signatures are checked all the same.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    strict: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(strict) = &self.strict else { return Ok(ServerCertVerified::assertion()) };
        match strict.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

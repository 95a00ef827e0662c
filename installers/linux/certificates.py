"""Run by the frozen engine before anything else: where this system keeps its certificates.

The bundled OpenSSL looks where the build machine had them; other distributions have them elsewhere.
"""

import os

PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
)

if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & set(os.environ):
    for place in PLACES:
        if os.path.exists(place):
            os.environ["SSL_CERT_FILE"] = place
            break

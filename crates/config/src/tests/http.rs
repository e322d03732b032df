//! `[http]` and `[tls]`.

use super::*;

#[test]
fn http_and_tls_are_read_and_their_mistakes_located() {
    let text = format!(
        "{GATEWAY}[http]\nhttp3 = true\ncors_origins = [\"https://a.example:8443\"]\n\
         max_header_bytes = \"64KiB\"\nmax_connections_per_address = 9\n\
         [tls]\ncertificate = \"c.pem\"\nkey = \"/k.pem\"\nclient_ca = \"ca.pem\"\n"
    );
    let gateway = parse(&text).unwrap().gateway.unwrap();
    let origins = vec!["https://a.example:8443".to_owned()];
    assert_eq!(gateway.http.cors_origins, CorsOrigins::These(origins));
    assert_eq!(gateway.http.max_header_bytes, 65_536);
    assert_eq!(gateway.http.max_connections_per_address, Some(9));
    let tls = gateway.tls.unwrap();
    assert_eq!(
        (tls.certificate, tls.key),
        (PathBuf::from("etc/c.pem"), PathBuf::from("/k.pem"))
    );
    assert_eq!(tls.client_ca, Some(PathBuf::from("etc/ca.pem")));
    let any = parse(&format!("{GATEWAY}[http]\ncors_origins = \"*\"\n")).unwrap();
    assert_eq!(any.gateway.unwrap().http.cors_origins, CorsOrigins::Any);

    let named = parse(&format!("{GATEWAY}[http]\nhosts = [\"a.example\"]\n")).unwrap();
    assert_eq!(named.gateway.unwrap().http.hosts, ["a.example"]);
    assert_complaint(
        &format!("{GATEWAY}[http]\nhosts = [\"a:80\"]\n"),
        "5: [http] hosts: want a list of names such as [\"tandem.internal\"], in lower case and without a \
         port, found the text \"a:80\" in it",
    );
    assert_complaint(
        &format!("{GATEWAY}[http]\nhttp3 = true\n"),
        "5: [http] http3: HTTP/3 needs TLS, and there is no [tls]",
    );
    assert_complaint(
        &format!("{GATEWAY}[tls]\ncertificate = \"c.pem\"\n"),
        "4: [tls] needs `key`: a path, relative to this file's folder or absolute",
    );
    for bad in ["a.example", "https://a.example/", "https://A.example", "*"] {
        assert_complaint(
            &format!("{GATEWAY}[http]\ncors_origins = [\"{bad}\"]\n"),
            &format!(
                "5: [http] cors_origins: want \"*\" or a list of origins such as \
                 [\"https://chat.example.com\"], found the text \"{bad}\" in it"
            ),
        );
    }
}

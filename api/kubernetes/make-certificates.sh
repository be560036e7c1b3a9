#!/bin/sh
# Certificates of the webhook where there is no cert-manager: an authority of its own, whose key is thrown
# away, and a certificate for ten years. Writes the manifest of the Secret to standard output; the caBundle
# for Helm is in the file that is named.
#
#     make-certificates.sh [RELEASE [NAMESPACE]] >secret.yaml
#     kubectl apply -f secret.yaml && rm secret.yaml
#     helm upgrade --install advisor api/kubernetes/chart --namespace advisor \
#       --set certificates.certManager=false --set-file certificates.caBundle=advisor-ca-bundle.txt
set -eu

release=${1:-advisor} namespace=${2:-advisor}
host=$release-webhook.$namespace.svc
umask 077
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

key() {
  openssl ecparam -name prime256v1 -genkey -noout -out "$folder/$1.key"
}

key ca
openssl req -x509 -new -key "$folder/ca.key" -days 3650 -subj "/CN=$host authority" \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -out "$folder/ca.crt"
key tls
openssl req -new -key "$folder/tls.key" -subj "/CN=$host" -out "$folder/tls.csr"
cat >"$folder/extensions" <<END
subjectAltName=DNS:$host,DNS:$host.cluster.local
extendedKeyUsage=serverAuth
END
openssl x509 -req -in "$folder/tls.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -set_serial 1 \
  -days 3650 -extfile "$folder/extensions" -out "$folder/tls.crt" 2>/dev/null

encoded() {
  base64 <"$folder/$1" | tr -d '\n'
}

encoded ca.crt >"$release-ca-bundle.txt"
cat <<END
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: $release-webhook-tls, namespace: $namespace}
data:
  ca.crt: $(encoded ca.crt)
  tls.crt: $(encoded tls.crt)
  tls.key: $(encoded tls.key)
END
echo "written: $release-ca-bundle.txt" >&2

package minio

import (
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// errNoCredentials is what the chain says instead of falling back to unsigned requests.
var errNoCredentials = errors.New("no credentials found (MINIO_ACCESS_KEY, AWS_ACCESS_KEY_ID, AWS or mc files, role)")

// found is the credential chain, but finding nothing is an error and not anonymous access.
type found struct{ credentials.Chain }

func chain() *found {
	// A machine without a role endpoint must not cost more than a moment.
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, DisableKeepAlives: true},
	}
	return &found{credentials.Chain{Providers: []credentials.Provider{
		&credentials.EnvMinio{},
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.FileMinioClient{},
		role{&credentials.IAM{Client: client}},
	}}}
}

// RetrieveWithCredContext implements credentials.Provider.
func (f *found) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	return signed(f.Chain.RetrieveWithCredContext(cc))
}

// Retrieve implements credentials.Provider.
func (f *found) Retrieve() (credentials.Value, error) { return signed(f.Chain.Retrieve()) }

func signed(v credentials.Value, err error) (credentials.Value, error) {
	if err == nil && v.SignerType.IsAnonymous() {
		err = errNoCredentials
	}
	return v, err
}

// role is the machine's role, silent where the environment says that there is no metadata endpoint
// (AWS_EC2_METADATA_DISABLED, which minio-go does not know) and names no other source.
type role struct{ *credentials.IAM }

// RetrieveWithCredContext implements credentials.Provider.
func (r role) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if metadataDisabled() {
		return credentials.Value{}, errNoCredentials
	}
	return r.IAM.RetrieveWithCredContext(cc)
}

// Retrieve implements credentials.Provider.
func (r role) Retrieve() (credentials.Value, error) { return r.RetrieveWithCredContext(nil) }

func metadataDisabled() bool {
	for _, other := range []string{
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
	} {
		if os.Getenv(other) != "" {
			return false
		}
	}
	return os.Getenv("AWS_EC2_METADATA_DISABLED") == "true"
}

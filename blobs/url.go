package blobs

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of names. S3 allows keys of 1024 bytes; what a key may use is 700, so a prefix has the rest.
const (
	MaxKey       = 700 // bytes of a key
	MaxComponent = 200 // bytes between two slashes of a key
	maxPrefix    = 300 // bytes of a store's prefix
)

// Location is a parsed store URL. Which fields are set depends on Scheme; see ParseURL.
type Location struct {
	Scheme       string // "s3", "r2", "minio", "dir" or "mem"
	Bucket       string // s3, r2, minio
	Prefix       string // s3, r2, minio: no slash at either end; empty for the whole bucket
	Region       string // s3, minio: empty if not given; r2: always "auto"
	Endpoint     string // s3: "http(s)://host[:port]" or empty for AWS; r2: derived; minio: "host:port"
	Account      string // r2: account id, 32 hex digits
	Jurisdiction string // r2: "eu", "fedramp" or empty
	PathStyle    bool   // s3: the bucket is a path component; the default is true where Endpoint is given
	TLS          bool   // minio: true unless the URL says tls=false
	Path         string // dir: absolute, cleaned
	Name         string // mem: shared by everybody in the process who uses the name; empty for a private store
}

// schemes is what the message about an unknown one shows.
const schemes = "s3://bucket/prefix, r2://ACCOUNT/bucket/prefix, minio://host:port/bucket/prefix, dir:///path or mem:"

var (
	schemePattern  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*):`)
	bucketPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$`)
	accountPattern = regexp.MustCompile(`^[0-9a-fA-F]{32}$`)
	regionPattern  = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9._-]{0,100}$`)
	secretPattern  = regexp.MustCompile(`(?i)key|secret|token|password|credential|signature`)
)

// ParseURL parses the URL of a store:
//
//	s3://bucket/prefix?region=R&endpoint=URL&path_style=BOOL
//	r2://ACCOUNT/bucket/prefix?jurisdiction=eu|fedramp
//	minio://host:port/bucket/prefix?tls=BOOL&region=R
//	dir:///absolute/path    (also a plain path without a scheme, made absolute)
//	mem: or mem:name
//
// The error names what is wrong and what would be right. It never repeats a secret found in raw.
func ParseURL(raw string) (*Location, error) {
	loc, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("store URL %q: %w", redact(raw), err)
	}
	return loc, nil
}

func parseURL(raw string) (*Location, error) {
	if raw == "" {
		return nil, fmt.Errorf("is empty; want %s", schemes)
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("contains a control character")
	}
	m := schemePattern.FindStringSubmatch(raw)
	if m == nil {
		return plainPath(raw)
	}
	scheme := strings.ToLower(m[1])
	if scheme == "mem" {
		return memLocation(raw[len(m[0]):])
	}
	if !slices.Contains([]string{"s3", "r2", "minio", "dir"}, scheme) {
		return nil, fmt.Errorf("unknown scheme %q; want %s, or a path", m[1], schemes)
	}
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the outer one repeats raw, perhaps with a secret in it
		}
		return nil, err
	}
	if err := refuseSecrets(u); err != nil {
		return nil, err
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("has a fragment %q; a store URL names a store, not a workspace", "#"+u.Fragment)
	}
	switch scheme {
	case "s3":
		return s3Location(u)
	case "r2":
		return r2Location(u)
	case "minio":
		return minioLocation(u)
	}
	return dirLocation(u)
}

// refuseSecrets keeps credentials out of URLs, which land in process lists, configuration and logs.
func refuseSecrets(u *url.URL) error {
	const where = "; credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, " +
		"AWS_SESSION_TOKEN), the AWS or mc configuration files, or the machine's role"
	if u.User != nil {
		return errors.New("holds a user name or password" + where)
	}
	for name := range u.Query() {
		if secretPattern.MatchString(name) {
			return fmt.Errorf("holds a credential in parameter %q%s", name, where)
		}
	}
	return nil
}

var (
	userinfo    = regexp.MustCompile(`//[^/?#]*@`)
	secretParam = regexp.MustCompile(`(?i)([?&;][^=&]*(?:key|secret|token|password|credential|signature)[^=&]*=)[^&#]*`)
)

// redact returns raw with what looks like a credential replaced, for messages.
func redact(raw string) string {
	return secretParam.ReplaceAllString(userinfo.ReplaceAllString(raw, "//***@"), "${1}***")
}

// params checks that the query holds only the allowed parameters, each once, and returns them.
func params(u *url.URL, allowed ...string) (map[string]string, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("bad query: %w", err)
	}
	got := make(map[string]string, len(q))
	for name, values := range q {
		if !slices.Contains(allowed, name) {
			if len(allowed) == 0 {
				return nil, fmt.Errorf("unknown parameter %q; %s: takes none", name, u.Scheme)
			}
			return nil, fmt.Errorf("unknown parameter %q; %s: takes %s", name, u.Scheme, strings.Join(allowed, ", "))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
		got[name] = values[0]
	}
	if r, ok := got["region"]; ok && !regionPattern.MatchString(r) {
		return nil, fmt.Errorf("bad region %q; want a name like us-east-1", r)
	}
	return got, nil
}

func boolParam(got map[string]string, name string, otherwise bool) (bool, error) {
	v, ok := got[name]
	if !ok {
		return otherwise, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("bad %s=%q; want true or false", name, v)
	}
	return b, nil
}

func s3Location(u *url.URL) (*Location, error) {
	got, err := params(u, "region", "endpoint", "path_style")
	if err != nil {
		return nil, err
	}
	loc := &Location{Scheme: "s3", Region: got["region"]}
	if u.Port() != "" {
		return nil, fmt.Errorf("%q has a port where the bucket belongs; want s3://bucket/prefix?endpoint=http://%s", u.Host, u.Host)
	}
	if loc.Endpoint, err = endpoint(got["endpoint"]); err != nil {
		return nil, err
	}
	if loc.PathStyle, err = boolParam(got, "path_style", loc.Endpoint != ""); err != nil {
		return nil, err
	}
	return loc, loc.setBucket(u.Host, u.Path, "s3://bucket/prefix")
}

// endpoint checks the URL of an S3 server: scheme, host and perhaps a port.
func endpoint(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return "", fmt.Errorf("bad endpoint %q; want http://host:port or https://host", redact(raw))
	case u.User != nil:
		return "", errors.New("the endpoint holds a user name or password; credentials come from the environment")
	case u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return "", fmt.Errorf("endpoint %q has more than scheme, host and port", redact(raw))
	}
	return u.Scheme + "://" + u.Host, nil
}

func r2Location(u *url.URL) (*Location, error) {
	const want = "r2://ACCOUNT/bucket/prefix"
	got, err := params(u, "jurisdiction")
	if err != nil {
		return nil, err
	}
	if !accountPattern.MatchString(u.Host) {
		return nil, fmt.Errorf("bad account %q; want %s with the account id of 32 hex digits", u.Host, want)
	}
	loc := &Location{Scheme: "r2", Account: strings.ToLower(u.Host), Region: "auto", PathStyle: true, Jurisdiction: got["jurisdiction"]}
	host := loc.Account
	switch loc.Jurisdiction {
	case "":
	case "eu", "fedramp":
		host += "." + loc.Jurisdiction
	default:
		return nil, fmt.Errorf("bad jurisdiction=%q; want eu or fedramp", loc.Jurisdiction)
	}
	loc.Endpoint = "https://" + host + ".r2.cloudflarestorage.com"
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return loc, loc.setBucket(bucket, prefix, want)
}

func minioLocation(u *url.URL) (*Location, error) {
	const want = "minio://host:port/bucket/prefix"
	got, err := params(u, "tls", "region")
	if err != nil {
		return nil, err
	}
	if u.Hostname() == "" {
		return nil, errors.New("missing host; want " + want)
	}
	loc := &Location{Scheme: "minio", Endpoint: u.Host, Region: got["region"]}
	if loc.TLS, err = boolParam(got, "tls", true); err != nil {
		return nil, err
	}
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return loc, loc.setBucket(bucket, prefix, want)
}

// setBucket checks and sets bucket and prefix; want is shown where the bucket is missing.
func (l *Location) setBucket(bucket, prefix, want string) error {
	if bucket == "" {
		return errors.New("missing bucket; want " + want)
	}
	if !bucketPattern.MatchString(bucket) || net.ParseIP(bucket) != nil {
		return fmt.Errorf("bad bucket name %q; want 3 to 63 letters, digits, dots, dashes or underscores", bucket)
	}
	prefix = strings.Trim(prefix, "/")
	if len(prefix) > maxPrefix {
		return fmt.Errorf("the prefix has %d bytes; at most %d are allowed", len(prefix), maxPrefix)
	}
	if prefix != "" {
		if err := CheckKey(prefix); err != nil {
			return fmt.Errorf("bad prefix: %w", err)
		}
	}
	l.Bucket, l.Prefix = bucket, prefix
	return nil
}

func dirLocation(u *url.URL) (*Location, error) {
	if _, err := params(u); err != nil {
		return nil, err
	}
	if u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") {
		return nil, errors.New("the directory must be absolute: three slashes, as in dir:///path")
	}
	return &Location{Scheme: "dir", Path: filepath.Clean(u.Path)}, nil
}

func plainPath(raw string) (*Location, error) {
	path, err := filepath.Abs(raw)
	if err != nil {
		return nil, fmt.Errorf("make the path absolute: %w", err)
	}
	return &Location{Scheme: "dir", Path: path}, nil
}

func memLocation(rest string) (*Location, error) {
	name := strings.TrimPrefix(rest, "//")
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("bad name %q; want mem: or mem:name with letters, digits, dots, dashes or underscores", name)
	}
	return &Location{Scheme: "mem", Name: name}, nil
}

// String is the canonical URL: ParseURL gives an equal Location for it. It holds no secret.
func (l *Location) String() string {
	if l.Scheme == "mem" {
		return "mem:" + l.Name
	}
	u := url.URL{Scheme: l.Scheme}
	q := url.Values{}
	switch l.Scheme {
	case "dir":
		return "dir://" + (&url.URL{Path: l.Path}).EscapedPath()
	case "s3":
		u.Host, u.Path = l.Bucket, l.Prefix
		setIf(q, "endpoint", l.Endpoint)
		setIf(q, "region", l.Region)
		if l.PathStyle != (l.Endpoint != "") {
			q.Set("path_style", strconv.FormatBool(l.PathStyle))
		}
	case "r2":
		u.Host, u.Path = l.Account, l.Bucket+"/"+l.Prefix
		setIf(q, "jurisdiction", l.Jurisdiction)
	case "minio":
		u.Host, u.Path = l.Endpoint, l.Bucket+"/"+l.Prefix
		setIf(q, "region", l.Region)
		if !l.TLS {
			q.Set("tls", "false")
		}
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if u.Path != "" {
		u.Path = "/" + u.Path
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// CheckKey tells whether key obeys the rules of Store, in an error that names the key and the rule broken.
// Components "." and ".." are refused too: a store of files could not keep them.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("key %.80q has %d bytes; want 1 to %d", key, len(key), MaxKey)
	}
	for part := range strings.SplitSeq(key, "/") {
		switch {
		case part == "", part == ".", part == "..":
			return fmt.Errorf("key %q has a component %q", key, part)
		case len(part) > MaxComponent:
			return fmt.Errorf("key %.80q has a component of %d bytes; at most %d are allowed", key, len(part), MaxComponent)
		}
		for i := range len(part) {
			if !keyByte(part[i]) {
				return fmt.Errorf("key %q has a byte %q; only letters, digits, '.', '_', '-' and '/' are allowed", key, part[i])
			}
		}
	}
	return nil
}

func keyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// MaxList is the longest page List returns.
const MaxList = 1000

// ListLimit is the page length that a limit given to List asks for.
func ListLimit(limit int) int {
	if limit <= 0 || limit > MaxList {
		return MaxList
	}
	return limit
}

// CheckExpiry tells whether expires is a time a presigned URL may live: 1 s to 7 days, the limits of S3's signature
// version 4.
func CheckExpiry(expires time.Duration) error {
	if expires < time.Second || expires > 7*24*time.Hour {
		return fmt.Errorf("a link that expires in %v is not possible; want 1 s to 168 h (7 days)", expires)
	}
	return nil
}

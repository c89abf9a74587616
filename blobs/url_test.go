package blobs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wsfs/blobs"
)

const account = "0123456789abcdef0123456789abcdef"

func TestParseURL(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]struct {
		loc  blobs.Location
		text string
	}{
		"s3://bucket":  {blobs.Location{Scheme: "s3", Bucket: "bucket"}, "s3://bucket"},
		"S3://bucket/": {blobs.Location{Scheme: "s3", Bucket: "bucket"}, "s3://bucket"},
		"s3://b.c-k/a/b/?region=eu-west-1": {
			blobs.Location{Scheme: "s3", Bucket: "b.c-k", Prefix: "a/b", Region: "eu-west-1"}, "s3://b.c-k/a/b?region=eu-west-1"},
		"s3://bucket?endpoint=http://127.0.0.1:9000/": {
			blobs.Location{Scheme: "s3", Bucket: "bucket", Endpoint: "http://127.0.0.1:9000", PathStyle: true},
			"s3://bucket?endpoint=http%3A%2F%2F127.0.0.1%3A9000"},
		"s3://bucket/p?endpoint=https://s3.example.com&path_style=false&region=auto": {
			blobs.Location{Scheme: "s3", Bucket: "bucket", Prefix: "p", Endpoint: "https://s3.example.com", Region: "auto"},
			"s3://bucket/p?endpoint=https%3A%2F%2Fs3.example.com&path_style=false&region=auto"},
		"s3://bucket?path_style=1": {blobs.Location{Scheme: "s3", Bucket: "bucket", PathStyle: true}, "s3://bucket?path_style=true"},
		"r2://" + account + "/bucket/pre/fix": {
			blobs.Location{Scheme: "r2", Account: account, Bucket: "bucket", Prefix: "pre/fix", Region: "auto", PathStyle: true,
				Endpoint: "https://" + account + ".r2.cloudflarestorage.com"}, "r2://" + account + "/bucket/pre/fix"},
		"r2://" + strings.ToUpper(account) + "/bucket?jurisdiction=fedramp": {
			blobs.Location{Scheme: "r2", Account: account, Bucket: "bucket", Region: "auto", PathStyle: true, Jurisdiction: "fedramp",
				Endpoint: "https://" + account + ".fedramp.r2.cloudflarestorage.com"}, "r2://" + account + "/bucket?jurisdiction=fedramp"},
		"minio://localhost:9000/bucket/p?tls=false": {
			blobs.Location{Scheme: "minio", Endpoint: "localhost:9000", Bucket: "bucket", Prefix: "p"}, "minio://localhost:9000/bucket/p?tls=false"},
		"minio://[::1]:9000/bucket?tls=true&region=x-1": {
			blobs.Location{Scheme: "minio", Endpoint: "[::1]:9000", Bucket: "bucket", TLS: true, Region: "x-1"}, "minio://[::1]:9000/bucket?region=x-1"},
		"dir:///srv/my%20store/../store?": {blobs.Location{Scheme: "dir", Path: "/srv/store"}, "dir:///srv/store"},
		"dir:/srv/a b":                    {blobs.Location{Scheme: "dir", Path: "/srv/a b"}, "dir:///srv/a%20b"},
		"/srv/what?/100%":                 {blobs.Location{Scheme: "dir", Path: "/srv/what?/100%"}, "dir:///srv/what%3F/100%25"},
		"some/dir":                        {blobs.Location{Scheme: "dir", Path: filepath.Join(wd, "some/dir")}, "dir://" + filepath.Join(wd, "some/dir")},
		"./x:y":                           {blobs.Location{Scheme: "dir", Path: filepath.Join(wd, "x:y")}, "dir://" + filepath.Join(wd, "x:y")},
		"mem:":                            {blobs.Location{Scheme: "mem"}, "mem:"},
		"mem:a-1":                         {blobs.Location{Scheme: "mem", Name: "a-1"}, "mem:a-1"},
		"mem://a-1":                       {blobs.Location{Scheme: "mem", Name: "a-1"}, "mem:a-1"},
	} {
		loc, err := blobs.ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if *loc != want.loc {
			t.Errorf("%s:\n got %+v\nwant %+v", raw, *loc, want.loc)
		}
		if loc.String() != want.text {
			t.Errorf("%s: String gives %s, want %s", raw, loc, want.text)
		}
		again, err := blobs.ParseURL(loc.String())
		if err != nil || *again != *loc {
			t.Errorf("%s: parsing %s again gives %+v, %v", raw, loc, again, err)
		}
	}
}

// TestParseURLErrors wants each message to name what is wrong, what would be right, and no secret.
func TestParseURLErrors(t *testing.T) {
	for raw, wants := range map[string][]string{
		"":                                         {"empty", "s3://bucket/prefix"},
		"ftp://host/x":                             {`unknown scheme "ftp"`, "s3://bucket/prefix", "dir:///path"},
		"s3:bucket":                                {"missing bucket", "s3://bucket/prefix"},
		"s3:///prefix":                             {"missing bucket"},
		"s3://ab":                                  {`bad bucket name "ab"`, "3 to 63"},
		"s3://10.0.0.1":                            {"bad bucket name"},
		"s3://localhost:9000/bucket":               {"port", "endpoint=http://localhost:9000"},
		"s3://bucket?Region=x":                     {`unknown parameter "Region"`, "region, endpoint, path_style"},
		"s3://bucket?region=a&region=b":            {`"region" is given 2 times`},
		"s3://bucket?region=EU":                    {`bad region "EU"`},
		"s3://bucket?endpoint=host:9000":           {`bad endpoint "host:9000"`, "http://host:port"},
		"s3://bucket?endpoint=http://h/b":          {"more than scheme, host and port"},
		"s3://bucket?path_style=maybe":             {`path_style="maybe"`, "true or false"},
		"s3://bucket/a//b":                         {"bad prefix"},
		"s3://bucket/../x":                         {"bad prefix"},
		"s3://bucket/ä":                            {"bad prefix"},
		"s3://bucket/" + strings.Repeat("p/", 200): {"prefix has", "300"},
		"s3://bucket#name":                         {"fragment"},
		"s3://bucket%zz":                           {"invalid URL escape"},
		"r2://bucket/x":                            {`bad account "bucket"`, "32 hex"},
		"r2://" + account:                          {"missing bucket", "r2://ACCOUNT/bucket"},
		"r2://" + account + "/bucket?jurisdiction=us": {`jurisdiction="us"`, "eu or fedramp"},
		"r2://" + account + "/bucket?region=auto":     {`unknown parameter "region"`},
		"minio:///bucket":                      {"missing host", "minio://host:port/bucket"},
		"minio://host:9000":                    {"missing bucket"},
		"minio://host:9000/bucket?tls=perhaps": {`tls="perhaps"`},
		"dir://relative/path":                  {"must be absolute", "dir:///path"},
		"dir:relative":                         {"must be absolute"},
		"dir:///x?create=true":                 {`unknown parameter "create"`, "takes none"},
		"mem:a/b":                              {`bad name "a/b"`},
		"/tmp/a\nb":                            {"control character"},
		"s3://AKIA:hunter2@bucket/x":           {"user name or password", "AWS_ACCESS_KEY_ID"},
		"minio://hunter2@host:1/bucket":        {"user name or password"},
		"s3://bucket?secret_key=hunter2":       {`"secret_key"`, "environment"},
		"s3://bucket?X-Amz-Security-Token=hunter2&region=x": {"credential in parameter"},
		"s3://b%zz?accessKey=hunter2":                       {"invalid URL escape"},
		"s3://bucket?endpoint=http://u:hunter2@h":           {"user name or password"},
		"ftp://u:hunter2@h/x":                               {"unknown scheme"},
	} {
		_, err := blobs.ParseURL(raw)
		if err == nil {
			t.Errorf("%q: no error", raw)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error does not say %q: %v", raw, want, err)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error repeats the secret: %v", raw, err)
		}
	}
}

// FuzzParseURL wants no panic, and every URL that is accepted to survive its canonical form.
func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"s3://bucket/p?region=x&endpoint=http://h:1", "r2://" + account + "/bucket", "minio://h:1/bucket?tls=false", "dir:///a%20b", "mem:x", "/p"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		loc, err := blobs.ParseURL(raw)
		if err != nil {
			return
		}
		again, err := blobs.ParseURL(loc.String())
		if err != nil || *again != *loc {
			t.Errorf("%q gives %+v, whose form %q gives %+v, %v", raw, loc, loc, again, err)
		}
	})
}

func TestCheckExpiry(t *testing.T) {
	for d, ok := range map[time.Duration]bool{
		0: false, time.Second - 1: false, time.Second: true, time.Hour: true, 168 * time.Hour: true, 168*time.Hour + 1: false, -time.Hour: false,
	} {
		if err := blobs.CheckExpiry(d); (err == nil) != ok {
			t.Errorf("%v: %v", d, err)
		}
	}
}

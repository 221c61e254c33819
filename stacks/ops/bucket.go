package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a place on S3, or on a service that is compatible with it.
type bucket struct {
	name, prefix string
	endpoint     string
	options      minio.Options
}

// bucketKeys are what the URL of a bucket may state, as that of a backend of Pulumi does.
var bucketKeys = []string{"endpoint", "profile", "region", "s3ForcePathStyle"}

// parseBucket reads "s3://bucket/prefix?region=eu-central-1". Credentials come from where the AWS CLI has them, too.
func parseBucket(text string) (*bucket, error) {
	wrong := func(rule string) error {
		return fmt.Errorf("--to: %q %s: write s3://bucket/prefix?region=eu-central-1, or, for another service, "+
			"s3://bucket/prefix?endpoint=https://minio.lan:9000&s3ForcePathStyle=true", text, rule)
	}

	u, err := url.Parse(text)
	if err == nil {
		text = u.Redacted()
	} else {
		text = "..." // only of a URL is it known where a password is
	}

	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil {
		return nil, wrong("is not the URL of a bucket")
	}

	query := u.Query()
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(bucketKeys, key) {
			return nil, wrong("sets " + key + ", which is not one of " + strings.Join(bucketKeys, ", "))
		}
	}

	endpoint, err := url.Parse(cmp.Or(query.Get("endpoint"), "https://s3.amazonaws.com"))
	if err != nil || endpoint.Host == "" || strings.Trim(endpoint.Path, "/") != "" ||
		endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, wrong("has an endpoint that is not the URL of a server")
	}

	lookup := minio.BucketLookupAuto

	if style := query.Get("s3ForcePathStyle"); style != "" {
		forced, err := strconv.ParseBool(style)
		if err != nil {
			return nil, wrong("has s3ForcePathStyle, which must be true or false")
		}

		if forced {
			lookup = minio.BucketLookupPath
		}
	}

	return &bucket{
		name: u.Host, prefix: strings.Trim(u.Path, "/"), endpoint: endpoint.Host,
		options: minio.Options{
			Creds: credentials.NewChainCredentials([]credentials.Provider{
				&credentials.EnvAWS{}, &credentials.FileAWSCredentials{Profile: query.Get("profile")}, &credentials.IAM{},
			}),
			Secure: endpoint.Scheme == "https", Region: query.Get("region"), BucketLookup: lookup,
		},
	}, nil
}

// checksumKey is the metadata of an object that has the SHA-256 checksum of its file.
const checksumKey = "Sha256"

// put copies files into the bucket. What is there stays as it is: another file of the same name is an error.
func (b *bucket) put(ctx context.Context, files ...string) error {
	client, err := minio.New(b.endpoint, &b.options)
	if err != nil {
		return err
	}

	for _, file := range files {
		if err := b.putFile(ctx, client, file); err != nil {
			return fmt.Errorf("%s is not copied to %s: %w", file, b, err)
		}
	}

	return nil
}

func (b *bucket) putFile(ctx context.Context, client *minio.Client, file string) error {
	checksum, err := checksumOf(file)
	if err != nil {
		return err
	}

	name := path.Join(b.prefix, filepath.Base(file))

	// The server compares what it has got.
	o := minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true,
		UserMetadata: map[string]string{checksumKey: checksum},
	}
	o.SetMatchETagExcept("*")

	_, err = client.FPutObject(ctx, b.name, name, file, o)

	var refused minio.ErrorResponse
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusPreconditionFailed {
		return err
	}

	// A request whose answer was lost is sent again: then it is this file that is there.
	there, err := client.StatObject(ctx, b.name, name, minio.StatObjectOptions{})

	switch {
	case err != nil:
		return fmt.Errorf("a file of that name is there, and could not determine whether it is this one: %w", err)
	case there.UserMetadata[checksumKey] != checksum:
		return errors.New("another file of that name is there, and stays")
	default:
		return nil
	}
}

// checksumOf is the SHA-256 checksum of a file, in hexadecimal.
func checksumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close() // it is only read

	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}

	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (b *bucket) String() string { return "s3://" + path.Join(b.name, b.prefix) }

package etcdbackup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
)

// extension is that of encrypted snapshots.
const extension = ".age"

// Recipients are those who can decrypt snapshots: the holders of the identities of keys or, without keys, whoever knows
// the passphrase. Without both, there are none, and snapshots are kept in plain text.
func Recipients(keys []string, passphrase string) ([]age.Recipient, error) {
	switch {
	case len(keys) > 0:
		return age.ParseRecipients(strings.NewReader(strings.Join(keys, "\n")))
	case passphrase != "":
		r, err := age.NewScryptRecipient(passphrase)

		return []age.Recipient{r}, err
	default:
		return nil, nil
	}
}

// encrypted is a fill that encrypts a file, and notes the hash of the result.
func (s *Snapshot) encrypted(plain io.ReadSeeker, recipients []age.Recipient) func(f *os.File) error {
	return func(f *os.File) error {
		if _, err := plain.Seek(0, io.SeekStart); err != nil {
			return err
		}

		sum := sha256.New()

		w, err := age.Encrypt(io.MultiWriter(f, sum), recipients...)
		if err != nil {
			return err
		}

		_, err = io.Copy(w, plain)
		err = errors.Join(err, w.Close())
		s.EncryptedSHA256 = hex.EncodeToString(sum.Sum(nil))

		return err
	}
}

// Decrypt writes what an encrypted snapshot holds. What it has written is worth nothing if it fails.
func Decrypt(from io.Reader, to io.Writer, identities ...age.Identity) error {
	r, err := age.Decrypt(from, identities...)
	if err != nil {
		return err
	}

	_, err = io.Copy(to, r)

	return err
}

// verifyEncrypted holds a file that cannot be read to its hash.
func verifyEncrypted(f *os.File, s Snapshot) error {
	if s.EncryptedSHA256 == "" {
		return errors.New("it is encrypted, and there is no note with its checksum: decrypt it to check whether it " +
			"is complete")
	}

	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}

	if hex.EncodeToString(sum.Sum(nil)) != s.EncryptedSHA256 {
		return errors.New("it has changed since it was taken")
	}

	return nil
}

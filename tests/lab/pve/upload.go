package pve

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// multipartForm begins the type of a body with a file.
const multipartForm = "multipart/form-data"

// readForm reads a form with a file in it, which comes last, as Proxmox VE reads it (PVE::APIServer::AnyEvent). The
// parameters are returned as another form has them.
func readForm(r *http.Request) ([]byte, *world.UploadedFile, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, nil, err
	}

	var (
		form = url.Values{}
		file *world.UploadedFile
	)

	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, nil, err
		}

		if part.FileName() != "" {
			form.Set("filename", part.FileName())

			if file, err = world.Receive(part, form.Get("checksum-algorithm")); err != nil {
				return nil, nil, err
			}

			continue
		}

		if err := addField(form, part); err != nil {
			return nil, nil, err
		}
	}

	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")

	return []byte(form.Encode()), file, nil
}

func addField(form url.Values, part *multipart.Part) error {
	text, err := io.ReadAll(io.LimitReader(part, maxBody))
	form.Add(part.FormName(), string(text))

	return err
}

func upload(r *request) (any, error) {
	if content := r.values.Get("content"); !slices.Contains(uploadable, content) {
		return nil, world.Invalid("content", "value '%s' does not have a value in the enumeration '%s'", content,
			strings.Join(uploadable, ", "))
	}

	if r.file == nil {
		return nil, &world.Error{Code: http.StatusInternalServerError, Reason: "missing temporary file name"}
	}

	return r.world.Upload(r.caller, r.vars["node"], r.vars["storage"], world.UploadRequest{
		Content: r.values.Get("content"), Filename: r.values.Get("filename"), Checksum: r.values.Get("checksum"),
		Algorithm: r.values.Get("checksum-algorithm"), File: r.file,
	})
}

// uploadable are the kinds of content that are files which a client has.
var uploadable = []string{"iso", "vztmpl", "import"}

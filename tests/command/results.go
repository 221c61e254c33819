package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Results are kept in a file, one JSON object to a line, so that a command that was cut off goes on where it was.
type Results[T any] struct {
	// Path of the file; empty: nothing is kept.
	Path string
	// Key names what a result is of: of several of one key the last counts. It is needed for Read only.
	Key func(T) string
}

// Read returns the results so far; none when there is no file. A line that was cut off is left out.
func (f Results[T]) Read() ([]T, error) {
	text, err := os.Open(f.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer text.Close()

	var all []T

	for decoder := json.NewDecoder(text); ; {
		var r T

		err := decoder.Decode(&r)

		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return f.last(all), nil
		case err != nil:
			return f.last(all), fmt.Errorf("%s: %w", f.Path, err)
		}

		all = append(all, r)
	}
}

// last are the results that count.
func (f Results[T]) last(all []T) []T {
	at := map[string]int{}
	for i, r := range all {
		at[f.Key(r)] = i
	}

	var last []T

	for i, r := range all {
		if at[f.Key(r)] == i {
			last = append(last, r)
		}
	}

	return last
}

// Append adds a result.
func (f Results[T]) Append(r T) error {
	if f.Path == "" {
		return nil
	}

	line, err := json.Marshal(r)
	if err != nil {
		return err
	}

	file, err := os.OpenFile(f.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = file.Write(append(line, '\n'))

	return errors.Join(err, file.Close())
}

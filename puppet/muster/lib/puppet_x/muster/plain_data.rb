# frozen_string_literal: true

module PuppetX
  module Muster
    # A report as data that JSON can hold. The output of a command is in it as the command wrote it, in whatever encoding;
    # one odd byte must not cost the whole report.
    module PlainData
      module_function

      def from(value)
        case value
        when Hash then value.to_h { |key, item| [text(key), from(item)] }
        when Array then value.map { |item| from(item) }
        when Integer, true, false, nil then value
        when Float then value.finite? ? value : value.to_s
        else text(value)
        end
      end

      def text(value)
        string = value.to_s
        # Puppet labels text by the locale: under LANG=C, UTF-8 comes as ASCII.
        string = string.dup.force_encoding(Encoding::UTF_8) unless string.encoding == Encoding::UTF_8
        string.scrub
      end
    end
  end
end
